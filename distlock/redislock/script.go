package redislock

import (
	_ "embed"

	"github.com/belugalock/belugalock/internal/redisconn"
)

var (
	//go:embed line.lua
	lineLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string
	//go:embed inspect.lua
	inspectLua string

	acquireScript = redisconn.NewScript(lineLua + acquireLua)
	extendScript  = redisconn.NewScript(extendLua)
	releaseScript = redisconn.NewScript(lineLua + releaseLua)
	inspectScript = redisconn.NewScript(inspectLua)
)
