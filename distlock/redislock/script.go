package redislock

import (
	"embed"

	"github.com/belugalock/belugalock/internal/redisconn"
)

// Each file states its keys, arguments and replies, or the local variables that it takes from the
// files before it and gives to those behind it. constants replaces the names of columns and times.
//
//go:embed lua/*.lua
var files embed.FS

func lua(names ...string) string { return constants.Replace(redisconn.Source(files, names...)) }

// A script that MayMove goes on with the record alone while its slot moves. The others fail then.
var (
	acquireScript  = redisconn.NewScript(lua("time", "acquire", "record", "queue", "acquire_any")).MayMove()
	acquireFreeing = acquireScript.Freeing()
	releaseMoving  = releaseScript.MayMove()
	releaseScript  = redisconn.NewScript(lua("unflagged", "release", "time", "record", "queue", "release_any"))
	raiseScript    = redisconn.NewScript(lua("time", "record", "queue", "raise"))
	extendScript   = redisconn.NewScript(lua("extend"))
	inspectScript  = redisconn.NewScript(lua("inspect")).MayMove()
)
