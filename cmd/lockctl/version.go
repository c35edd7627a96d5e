package main

import "runtime/debug"

// version returns the tag that go install has built, or a text for a build from a work tree.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
