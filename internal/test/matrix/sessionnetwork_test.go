package matrix

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/faultnet"
)

// sessionCall is a call on a session whose requests or replies a test does something to.
type sessionCall struct {
	name   string
	inTurn bool
	first  bool // it is the turn's first
	named  bool // it is a SaveOnce, whose ID is the text
	do     func(ctx context.Context, s *session, text string) error
}

func saves(ctx context.Context, s *session, text string) error { return s.save(ctx, text) }

func savesOnce(ctx context.Context, s *session, text string) error {
	return s.saveOnce(ctx, text, text)
}

func clears(ctx context.Context, s *session, _ string) error { return s.Clear(ctx) }

var sessionCalls = []sessionCall{
	{name: "Save", do: saves},
	{name: "Save-named", do: savesOnce, named: true},
	{name: "Save-inTurn", do: saves, inTurn: true},
	{name: "Save-inTurn-named", do: savesOnce, inTurn: true, named: true},
	{name: "Save-inTurn-first", do: saves, inTurn: true, first: true},
	{name: "Save-inTurn-first-named", do: savesOnce, inTurn: true, first: true, named: true},
	{name: "Clear", do: clears},
	{name: "Clear-inTurn", do: clears, inTurn: true},
	{name: "Load-inTurn-first", inTurn: true, first: true, do: func(ctx context.Context, s *session, _ string) error {
		_, err := s.Load(ctx, "")
		return err
	}},
}

func (c sessionCall) clears() bool { return c.name == "Clear" || c.name == "Clear-inTurn" }
func (c sessionCall) loads() bool  { return c.name == "Load-inTurn-first" }
func (c sessionCall) saves() bool  { return !c.clears() && !c.loads() }

// The server has done the work, and its answers are lost with the connection: the n-th one, and
// some after it, for every n. An acknowledged exchange is there once. One without an answer is
// there once or not at all, and once after another SaveOnce under the same ID.
func sessionRepliesLost(t *testing.T, s *service) {
	tries, failed := 0, 0
	for client, with := range map[string]setting{
		"replays": ofRedis(func(o *redis.UniversalOptions) {
			o.MinRetryBackoff, o.MaxRetryBackoff = time.Millisecond, 2*time.Millisecond
		}),
		"sendsOnce": withoutReplays,
	} {
		if s.postgres != nil && client == "replays" {
			continue // its client sends everything once
		}
		network := faultnet.NewNet(t)
		in := s.instance(t, withTTL(time.Minute), dialedBy(network.Dial), with)
		others := s.instance(t, withTTL(time.Minute))
		for _, apart := range []bool{false, true} {
			for _, call := range sessionCalls {
				key := fmt.Sprintf("sessionRepliesLost-%s-%s-%t", client, call.name, apart)
				x, other, b := in.session(key, apart), others.session(key, apart), new(book)
				lost := 0
				for _, more := range []int64{0, 7} {
					for n := int64(1); ; n++ {
						var asked atomic.Int64
						err := call.run(t, s, x, other, b, fmt.Sprint("text-", more, "-", n), func() func() {
							about := faultnet.Containing(s.named(key)) // what a client asks of itself is its own
							return network.DropReplies(func(request []byte) bool {
								if !about(request) {
									return false
								}
								count := asked.Add(1)
								return n <= count && count <= n+more
							}).Stop
						})
						if asked.Load() < n {
							break
						}
						lost++
						if err != nil {
							failed++
						}
					}
				}
				if tries += lost; lost == 0 {
					t.Errorf("%s: no reply was lost", key)
				}
			}
		}
	}
	t.Logf("in %d of %d calls the caller was told nothing", failed, tries)
}

// run makes the call while a fault lasts, and again if it failed and may be repeated, and checks
// what came of it. It returns the error of the first.
func (c sessionCall) run(t *testing.T, s *service, x, other *session, b *book, text string, fault func() (end func())) error {
	t.Helper()
	ctx := t.Context()
	var older, turn *turn
	if c.loads() {
		older = other.begin(t)
		s.mustAsk(t, expire, x.key)
	}
	before := "before-" + text
	switch {
	case c.inTurn:
		turn = x.begin(t)
		ctx = turn.ctx
		if !c.first {
			b.mustSave(t, ctx, x, before)
		}
	case c.clears():
		b.mustSave(t, ctx, other, before)
	}
	end := fault()
	err := c.do(ctx, x, text)
	end()
	if c.saves() {
		_ = b.note(text, err)
	}
	if err != nil {
		wantsWrite(t, x.key+", "+text, err)
		if c.named || !c.saves() {
			if err := c.do(ctx, x, text); err != nil {
				t.Errorf("%s, %s: when it was repeated: %v", x.key, text, err)
			}
			if c.named {
				b.unknown = slices.DeleteFunc(b.unknown, func(other string) bool { return other == text })
				b.saved = append(b.saved, text)
			}
		}
	}
	if c.clears() {
		*b = book{}
	}
	if c.loads() {
		stale(t, x.key+", "+text+": a Save of the older holder", older.saveUnchecked("stale"), older.lease.Fence(), turn.lease.Fence())
		older.finish()
	}
	if turn != nil {
		turn.mustEnd(t)
	}
	b.check(t, other.history(t, t.Context()))
	return err
}
