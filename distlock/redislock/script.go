package redislock

import (
	_ "embed"

	"github.com/belugalock/belugalock/internal/redisconn"
)

// The parts of the scripts. Each file states its keys, arguments and replies.
var (
	//go:embed lua/time.lua
	timeLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/batch.lua
	batchLua string
	//go:embed lua/record.lua
	recordLua string
	//go:embed lua/slow.lua
	slowLua string
	//go:embed lua/acquirefull.lua
	acquireFullLua string
	//go:embed lua/releasefull.lua
	releaseFullLua string
	//go:embed lua/raise.lua
	raiseLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/inspect.lua
	inspectLua string
)

// The scripts. A batch is the lone script in a loop, with an answer of its own for each lock.
var (
	acquireScript = redisconn.NewScript(timeLua+`
local fresh
local key, owner, payload = KEYS[1], ARGV[2], ARGV[3]
`+acquireLua).WithBatch(acquireBatch, 1)  // the TTL
	acquireBatch = redisconn.NewScript(timeLua + `
local first, fresh = 1, string.format('%.0f%.0f00086400020', now, block)
local function one(key, owner, payload)
` + acquireLua + "end\n" + batchLua)
	acquireFull = redisconn.NewScript(recordLua + slowLua + acquireFullLua)

	// releaseScript releases with the queue if it is alone, and without the queue in a batch.
	releaseScript = releaseFull.WithBatch(releaseBatch, 0)
	releaseBatch  = redisconn.NewScript(`
local first, full, plain = 0, false, false
local function one(key, owner)
` + releaseLua + "end\n" + batchLua)
	releaseOne = redisconn.NewScript(`
local key, owner, full, plain = KEYS[1], ARGV[1], false, false
` + releaseLua)
	releaseFull = redisconn.NewScript(`
local key, owner, full, plain = KEYS[1], ARGV[1], true, not ARGV[2]
` + releaseLua + recordLua + slowLua + releaseFullLua)

	raiseScript   = redisconn.NewScript(recordLua + raiseLua)
	extendScript  = redisconn.NewScript(extendLua)
	inspectScript = redisconn.NewScript(inspectLua)
)
