package redisstore

import (
	_ "embed"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
)

var (
	//go:embed session.lua
	sessionLua string
	//go:embed load.lua
	loadLua string
	//go:embed turnids.lua
	turnIDsLua string
	//go:embed append.lua
	appendLua string
	//go:embed stored.lua
	storedLua string
	//go:embed clear.lua
	clearLua string

	loadScript   = redisconn.NewScript(redislock.ColocatedLua + sessionLua + loadLua)
	appendScript = redisconn.NewScript(redislock.ColocatedLua + sessionLua + turnIDsLua + appendLua)
	storedScript = redisconn.NewScript(turnIDsLua + storedLua)
	clearScript  = redisconn.NewScript(redislock.ColocatedLua + sessionLua + clearLua)
)
