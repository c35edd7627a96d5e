package redislock

import (
	"embed"

	"github.com/belugalock/belugalock/internal/redisconn"
)

// Each file states its keys, arguments and replies.
//
//go:embed lua/*.lua
var files embed.FS

func lua(names ...string) string { return redisconn.Source(files, names...) }

// The scripts. A batch is the lone script in a loop, with an answer of its own for each lock.
var (
	acquireScript = redisconn.NewScript(lua("time")+`
local fresh
local key, owner, payload = KEYS[1], ARGV[2], ARGV[3]
`+lua("acquire")).WithBatch(acquireBatch, 1)  // the TTL
	acquireBatch = redisconn.NewScript(lua("time") + `
local shared_args, fresh = 1, string.format('%.0f%.0f00086400020', now, block)
local function one(key, owner, payload)
` + lua("acquire") + "end\n" + lua("batch"))
	acquireFull    = redisconn.NewScript(lua("record", "slow", "acquirefull")).MayMove()
	acquireFreeing = acquireFull.Freeing()

	// Of a release:
	//
	//	releaseFull    needs all keys, so it fails while their slot moves
	//	releaseMoving  goes on with the record alone while the slot moves
	//	releaseScript  the same; without the queue in a batch
	releaseScript = releaseMoving.WithBatch(releaseBatch, 0)
	releaseBatch  = redisconn.NewScript(`
local shared_args, has_queue, only_releases = 0, false, false
local function one(key, owner)
` + lua("release") + "end\n" + lua("batch"))
	releaseMoving = releaseFull.MayMove()
	releaseFull   = redisconn.NewScript(`
local key, owner, has_queue, only_releases = KEYS[1], ARGV[1], KEYS[2] ~= nil, not ARGV[2]
` + lua("release", "record", "slow", "releasefull"))

	raiseScript   = redisconn.NewScript(lua("record", "raise"))
	extendScript  = redisconn.NewScript(lua("extend"))
	inspectScript = redisconn.NewScript(lua("inspect")).MayMove()
)
