//go:build !beluga

package belugamemory_test

// incomplete lists no package: the contract has all that the pages use.
var incomplete []string
