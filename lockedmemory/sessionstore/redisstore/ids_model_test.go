package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Writes with an ID, Clears, reads of an ID and their late copies come in random order. Redis answers as memstore,
// and has the same records.
func TestIDs_O_randomCalls_asMemstore(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: servers.SharedServer().Addr()})
	t.Cleanup(func() { _ = client.Close() })
	remote, err := redisstore.NewDriver(client, nil)
	must(t, err)
	local, err := memstore.NewDriver(nil)
	must(t, err)
	locker, err := memlock.New(nil)
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(t.Context()) })
	lease, err := locker.Acquire(t.Context(), t.Name())
	must(t, err)
	for seed := range uint64(60) {
		c := &randomCalls{rand.New(rand.NewPCG(seed, 0)), lease, fmt.Sprintf("%s-%d", t.Name(), seed), map[int64]bool{}}
		var sent []any
		var trace []string
		for step := range int64(30) {
			call := c.next(step)
			if len(sent) > 0 && c.IntN(4) == 0 {
				call = sent[c.IntN(len(sent))]
			} else if sent = append(sent, call); c.IntN(6) == 0 {
				continue // the packet is late
			}
			got, want := c.answer(t, remote, call), c.answer(t, local, call)
			trace = append(trace, fmt.Sprintf("%+v: %s", call, got))
			for _, id := range someIDs {
				read := storedriver.Read{Access: storedriver.Access{Session: c.session}, ID: id, Limit: 1}
				got, want = got+c.answer(t, remote, read), want+c.answer(t, local, read)
			}
			if got != want {
				t.Fatalf("session %s: Redis has %s\nmemstore has %s\nafter %q", c.session, got, want, trace)
			}
		}
	}
}

var someIDs = []string{"a", "b", "c"}

// randomCalls are those of leases on one session, whose tokens rise.
type randomCalls struct {
	*rand.Rand
	lease   *distlock.Lease
	session string
	shown   map[int64]bool // tokens that the drivers have accepted
}

// next returns a storedriver.Write, which is a Clear, a storedriver.Append or a storedriver.Read.
func (c *randomCalls) next(step int64) any {
	fence := c.lease.Fence() + step/6
	if step >= 6 && c.IntN(4) == 0 {
		fence--
	}
	access := storedriver.Access{Session: c.session, Lease: c.lease, Fence: fence, FirstAccess: !c.shown[fence] || c.IntN(3) == 0}
	write := storedriver.Write{Access: access, N: step + 1, Op: fmt.Sprintf("%032x", step)}
	id := someIDs[c.IntN(len(someIDs))]
	switch c.IntN(8) {
	case 0:
		return write
	case 1:
		access.FirstAccess = true
		return storedriver.Read{Access: access, ID: id, Limit: 1}
	case 2:
		return storedriver.Append{Write: write, Content: storedriver.Content{Messages: [][]byte{[]byte(write.Op)}}}
	}
	return storedriver.Append{Write: write, Content: storedriver.Content{
		Messages: [][]byte{[]byte(write.Op)}, ID: id, Digest: [16]byte{byte(1 + c.IntN(2))},
	}}
}

// answer makes a call, and returns the text of its answer.
func (c *randomCalls) answer(t *testing.T, d storedriver.Driver, call any) string {
	t.Helper()
	var page storedriver.Page
	var err error
	var access storedriver.Access
	switch call := call.(type) {
	case storedriver.Write:
		access = call.Access
		page.Verdict, err = d.Clear(t.Context(), storedriver.Clear{Write: call})
	case storedriver.Append:
		access = call.Access
		page.Verdict, err = d.Append(t.Context(), call)
	case storedriver.Read:
		page, err = d.Read(t.Context(), call)
	}
	must(t, err)
	c.shown[access.Fence] = c.shown[access.Fence] || page.Outcome == storedriver.Done
	return fmt.Sprintf("outcome %d, known %t, %v; ", page.Outcome, page.Known, page.Entries)
}
