package redisstore

import (
	_ "embed"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
)

var (
	//go:embed reply.lua
	replyLua string
	//go:embed session.lua
	sessionLua string
	//go:embed load.lua
	loadLua string
	//go:embed turnids.lua
	turnIDsLua string
	//go:embed named.lua
	namedLua string
	//go:embed append.lua
	appendLua string
	//go:embed stored.lua
	storedLua string
	//go:embed clear.lua
	clearLua string

	loadScript   = redisconn.NewScript(replyLua + redislock.ColocatedLua + sessionLua + loadLua)
	appendScript = redisconn.NewScript(replyLua + turnIDsLua + namedLua + redislock.ColocatedLua + sessionLua + appendLua)
	storedScript = redisconn.NewScript(turnIDsLua + storedLua)
	clearScript  = redisconn.NewScript(replyLua + redislock.ColocatedLua + sessionLua + clearLua)
)
