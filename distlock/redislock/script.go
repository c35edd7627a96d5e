package redislock

import (
	"embed"

	"github.com/belugalock/belugalock/internal/redisconn"
)

// Each file states its keys, arguments and replies. It names the columns of a record as columns does.
//
//go:embed lua/*.lua
var files embed.FS

func lua(names ...string) string { return columns.Replace(redisconn.Source(files, names...)) }

// A script that MayMove goes on with the record alone while its slot moves. The others fail then.
var (
	acquireScript  = redisconn.NewScript(lua("time", "acquire", "record", "slow", "acquirefull")).MayMove()
	acquireFreeing = acquireScript.Freeing()
	releaseMoving  = releaseScript.MayMove()
	releaseScript  = redisconn.NewScript(lua("unflagged", "release", "time", "record", "slow", "releasefull"))
	raiseScript    = redisconn.NewScript(lua("time", "record", "slow", "raise"))
	extendScript   = redisconn.NewScript(lua("extend"))
	inspectScript  = redisconn.NewScript(lua("inspect")).MayMove()
)
