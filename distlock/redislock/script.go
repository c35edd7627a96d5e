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

// While its slot moves, a script with FirstKeyAloneIfMoving goes on with the record alone. The others
// fail then.
var (
	acquireScript  = redisconn.NewScript(lua("time", "acquire", "record", "queue", "acquire_any")).FirstKeyAloneIfMoving()
	acquireFreeing = acquireScript.NeedsNoMemory()
	releaseMoving  = releaseScript.FirstKeyAloneIfMoving()
	releaseScript  = redisconn.NewScript(lua("unflagged", "release", "time", "record", "queue", "release_any"))
	raiseScript    = redisconn.NewScript(lua("time", "record", "queue", "raise"))
	askScript      = redisconn.NewScript(lua("time", "record", "queue", "ask"))
	extendScript   = redisconn.NewScript(lua("extend"))
	inspectScript  = redisconn.NewScript(lua("inspect")).FirstKeyAloneIfMoving()
)
