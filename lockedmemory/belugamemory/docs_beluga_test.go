//go:build beluga

package belugamemory_test

// notHad is what cannot be had of Beluga: here it is the real one.
var notHad []string
