package redisstore

import (
	"embed"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
)

//go:embed *.lua
var files embed.FS

func lua(names ...string) string { return redisconn.Source(files, names...) }

var (
	loadScript   = redisconn.NewScript(lua("reply") + redislock.ColocatedLua + lua("session", "load"))
	appendScript = redisconn.NewScript(lua("reply", "turnids", "named") + redislock.ColocatedLua + lua("session", "append"))
	storedScript = redisconn.NewScript(lua("turnids", "stored"))
	clearScript  = redisconn.NewScript(lua("reply") + redislock.ColocatedLua + lua("session", "clear"))
)
