package redisstore

import (
	"embed"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
)

//go:embed lua/*.lua
var files embed.FS

func lua(names ...string) string { return redisconn.Source(files, names...) }

// checked is the source of a script that checks the mark and the lock before its own part.
func checked(names ...string) string {
	return lua("reply") + redislock.ColocatedLua + lua("session") + lua(names...)
}

var (
	loadScript   = redisconn.NewScript(checked("load"))
	appendScript = redisconn.NewScript(lua("reply", "turnids", "named") + redislock.ColocatedLua + lua("session", "append"))
	storedScript = redisconn.NewScript(lua("turnids", "stored"))
	stageScript  = redisconn.NewScript(checked("staging", "stage"))
	swapScript   = redisconn.NewScript(checked("staging", "swap"))
)
