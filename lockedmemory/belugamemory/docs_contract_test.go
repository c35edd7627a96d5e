//go:build !beluga

package belugamemory_test

// notHad is what the contract has no part of.
var notHad = []string{belugaPath + "agent"}
