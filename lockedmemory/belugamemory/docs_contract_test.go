//go:build !beluga

package belugamemory_test

// incomplete lists packages of which the contract lacks something that the pages use.
var incomplete = []string{belugaPath + "agent"}
