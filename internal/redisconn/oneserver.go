package redisconn

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// probed is what an exchange knows of the servers of its keys.
type probed = int32

const (
	notProbed probed = iota
	probing
	oneServer // keeps all keys, and runs scripts with several of them
	severalServers
)

const (
	// probeLimit bounds a probe.
	probeLimit = time.Second
	// probeKeys is how many keys a probe marks. It misses a proxy that sends 1 key of 100 to another server
	// with a probability of 0.6 %, and 1 of 20 with 4e-12.
	probeKeys = 512
)

// The scripts of a probe. The first one leaves a mark at one key. The second one counts the keys with the
// mark.
var (
	markScript  = NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'PX', 2000)`)
	countScript = NewScript(`
local n = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    n = n + 1
  end
end
return n`)
)

// takesBatches reports whether one server keeps all keys. The first batch starts a probe. Until its end
// there are no batches, so no call waits for it.
//
// ⚑ A proxy may spread keys over servers by the first key of a command. A batch would then look for most
// of its locks on the wrong server, and grant them to a second owner.
func (x *exchange) takesBatches(batch *Call) bool {
	if x.servers.CompareAndSwap(notProbed, probing) {
		key, _ := batch.keyAndArgs()
		namespace, _, _ := strings.Cut(key, "{")
		x.mu.Lock()
		if x.leaders.start(func() {
			defer x.end()
			x.servers.Store(x.probe(namespace))
		}) {
			x.startLocked()
		}
		x.mu.Unlock()
	}
	return x.servers.Load() == oneServer
}

// probe marks keys one by one, and checks whether a script with all of them finds the marks.
func (x *exchange) probe(namespace string) probed {
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	keys, mark := make([]string, probeKeys), rand.Text()
	cmds := make([]redis.Cmder, probeKeys, probeKeys+1)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s{%s%d}:probe", namespace, mark, i)
		cmds[i] = markScript.Call(ctx, keys[i:i+1], mark).Whole()
	}
	count := countScript.Call(ctx, keys, mark).Whole()
	x.roundTripFor(append(cmds, count), ctx)
	err := count.Err()
	for _, cmd := range cmds {
		if err == nil {
			err = cmd.Err()
		}
	}
	switch found, _ := count.Int(); {
	case err == nil && found == len(keys):
		return oneServer
	case err == nil, IsReply(err) && !IsTemporary(err):
		return severalServers
	}
	return notProbed
}
