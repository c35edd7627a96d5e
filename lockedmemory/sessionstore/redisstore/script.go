package redisstore

import (
	"embed"
	"fmt"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
)

//go:embed lua/*.lua
var files embed.FS

func lua(names ...string) string { return redisconn.Source(files, names...) }

// checked is the source of a script that checks the mark and the lock before its own part.
func checked(frees bool, names ...string) string {
	return lua("reply") + redislock.ColocatedLua + fmt.Sprintf("local frees = %t\n", frees) + lua("session") + lua(names...)
}

var (
	loadScript   = redisconn.NewScript(checked(false, "load"))
	appendScript = redisconn.NewScript(lua("reply", "ids", "named") + redislock.ColocatedLua +
		"local frees = false\n" + lua("session", "append"))
	storedScript = redisconn.NewScript(lua("ids", "stored"))
	stageScript  = redisconn.NewScript(checked(false, "staging", "stage"))
	stageFreeing = redisconn.NewScript(checked(true, "staging", "stage")) // of a Replace by nothing
	swapScript   = redisconn.NewScript(checked(true, "staging", "swap"))  // the old log goes
)
