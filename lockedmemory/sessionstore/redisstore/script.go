package redisstore

import (
	"embed"

	"github.com/belugalock/belugalock/internal/redisconn"
)

//go:embed lua/*.lua
var files embed.FS

func lua(names ...string) string { return redisconn.Source(files, names...) }

// scripts are those of a driver.
type scripts struct {
	load, append, plain, answered, clear, stage, swap, close, inbox, enlist *redisconn.Script
}

// newScripts returns the scripts of a driver beside locks.
func newScripts(locks redisconn.Locks) scripts {
	shared, functions := lua("access")+redisconn.CallsLua, locks.StoreLua()+lua("session")
	session := shared + functions
	records := functions + lua("records")
	inIDs := shared + lua("ids", "saveonce")
	return scripts{
		load:     redisconn.NewScript(session + lua("load")),
		append:   redisconn.NewScript(inIDs + lua("exchange", "inturn") + records + lua("append")),
		plain:    redisconn.NewScript(shared + lua("exchange") + functions + lua("append")), // without IDs
		answered: redisconn.NewScript(lua("ids", "answered")),
		clear:    redisconn.NewScript(session + lua("clear")),
		stage:    redisconn.NewScript(session + lua("staging", "stage")),
		swap:     redisconn.NewScript(session + lua("staging", "swap")),
		close:    redisconn.NewScript(inIDs + records + lua("close")),
		inbox:    redisconn.NewScript(inIDs + records + lua("index", "inbox")),
		enlist:   redisconn.NewScript(redisconn.CallsLua + lua("index", "enlist")),
	}
}
