//go:build !beluga

package belugamemory_test

// notHad is what the contract has not all of that the pages use.
var notHad = []string{belugaPath + "agent"}
