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
	load, append, answerAll, answered, clear, stage, swap, close, inbox, enlist *redisconn.Script
}

// newScripts returns the scripts of a driver beside locks.
func newScripts(locks redisconn.Locks) scripts {
	shared, functions := lua("access", "calls"), locks.StoreLua()+lua("session")
	session := shared + functions
	records := shared + lua("ids", "saveonce") + functions + lua("records")
	return scripts{
		load:      redisconn.NewScript(session + lua("load")),
		append:    redisconn.NewScript(shared + lua("ids", "saveonce", "inturn") + functions + lua("append")),
		answered:  redisconn.NewScript(lua("ids", "answered")),
		clear:     redisconn.NewScript(session + lua("clear")),
		stage:     redisconn.NewScript(session + lua("staging", "stage")),
		swap:      redisconn.NewScript(session + lua("staging", "swap")),
		close:     redisconn.NewScript(records + lua("close")),
		answerAll: redisconn.NewScript(records + lua("answerall")),
		inbox:     redisconn.NewScript(records + lua("index", "inbox")),
		enlist:    redisconn.NewScript(lua("calls", "index", "enlist")),
	}
}
