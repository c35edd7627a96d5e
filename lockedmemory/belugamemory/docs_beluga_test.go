//go:build beluga

package belugamemory_test

// incomplete lists no package: this is the real Beluga.
var incomplete []string
