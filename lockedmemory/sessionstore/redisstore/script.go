package redisstore

import (
	"embed"

	"github.com/belugalock/belugalock/internal/redisconn"
)

//go:embed lua/*.lua
var files embed.FS

func lua(names ...string) string { return redisconn.Source(files, names...) }

// scripts are those of a driver.
type scripts struct{ load, append, answered, stage, swap *redisconn.Script }

// newScripts returns the scripts of a driver beside locks.
func newScripts(locks redisconn.Locks) scripts {
	checked := locks.StoreLua() + lua("session")
	return scripts{
		load:     redisconn.NewScript(lua("reply") + checked + lua("load")),
		append:   redisconn.NewScript(lua("reply", "ids", "saveonce") + checked + lua("append")),
		answered: redisconn.NewScript(lua("ids", "answered")),
		stage:    redisconn.NewScript(lua("reply") + checked + lua("staging", "stage")),
		swap:     redisconn.NewScript(lua("reply") + checked + lua("staging", "swap")),
	}
}
