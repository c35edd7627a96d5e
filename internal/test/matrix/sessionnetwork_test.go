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

// The request of a call that was cancelled arrives when the turn has gone on, is over, or is
// another's. It takes effect where its lease was, or not at all: not after what the turn has done
// since, nor after what the next holder has seen, saved, or cleared.
func sessionPacketIsLate(t *testing.T, s *service) {
	network := faultnet.NewNet(t)
	in, others := s.instance(t, withTTL(time.Minute), dialedBy(network.Dial)), s.instance(t, withTTL(time.Minute))
	for _, apart := range []bool{false, true} {
		for _, call := range sessionCalls {
			for meanwhile, access := range map[string]func(*turn, *book) error{
				"nothing": nil,
				"load": func(next *turn, b *book) error {
					b.check(t, next.history(t, next.ctx))
					return nil
				},
				"save": func(next *turn, b *book) error { return b.note("saved", next.save(next.ctx, "saved")) },
				"clear": func(next *turn, b *book) error {
					*b = book{}
					return next.Clear(next.ctx)
				},
				"repeat": func(next *turn, b *book) error {
					return b.note("late", next.saveOnce(next.ctx, "late", "late"))
				},
			} {
				if call.loads() || meanwhile == "repeat" && !call.named {
					continue
				}
				if call.inTurn && (meanwhile == "save" || meanwhile == "clear" && !call.clears()) {
					key := fmt.Sprintf("sessionPacketIsLate-%s-own-%s-%t", call.name, meanwhile, apart)
					call.lateInItsTurn(t, network, in.session(key, apart), others.session(key, apart), access)
				}
				key := fmt.Sprintf("sessionPacketIsLate-%s-%s-%t", call.name, meanwhile, apart)
				call.late(t, network, in.session(key, apart), others.session(key, apart), access, false)
				if !call.inTurn && access != nil {
					call.late(t, network, in.session(key+"-after", apart), others.session(key+"-after", apart), access, true)
				}
			}
		}
	}
}

// held cancels the call while its request is held back. turn is nil for a call outside a turn.
func (c sessionCall) held(t *testing.T, network *faultnet.Net, x, other *session, b *book) (turn *turn, packet *faultnet.Held) {
	t.Helper()
	b.mustSave(t, t.Context(), other, "before")
	ctx := t.Context()
	if c.inTurn {
		turn = x.begin(t)
		if ctx = turn.ctx; !c.first {
			b.mustSave(t, ctx, x, "first")
		}
	}
	about := faultnet.Containing(reply("late"))
	if c.clears() {
		session, saves := x.requests(), faultnet.Containing(reply("")) // of the turn, later
		about = func(request []byte) bool { return session(request) && !saves(request) }
	}
	packet = network.HoldRequests(about)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.do(ctx, x, "late") }()
	packet.Wait(1)
	time.AfterFunc(prompt/2, cancel) // until then, it may be sent again
	wants(t, x.key, <-done, context.Canceled)
	return turn, packet
}

// lateInItsTurn lets the request arrive when its own turn has gone on.
func (c sessionCall) lateInItsTurn(t *testing.T, network *faultnet.Net, x, other *session, access func(*turn, *book) error) {
	t.Helper()
	b := new(book)
	turn, packet := c.held(t, network, x, other, b)
	if err := access(turn, b); err != nil {
		t.Errorf("%s: %v", x.key, err)
	}
	packet.Release()
	b.mustSave(t, turn.ctx, x, "after")
	turn.mustEnd(t)
	b.check(t, other.history(t, t.Context()))
}

// late holds the request back until the next holder has accessed the session, or, if after is set,
// until that one's turn is over.
func (c sessionCall) late(t *testing.T, network *faultnet.Net, x, other *session, access func(*turn, *book) error, after bool) {
	t.Helper()
	b := new(book)
	turn, packet := c.held(t, network, x, other, b)
	if turn != nil {
		turn.mustEnd(t)
	}
	if access == nil {
		packet.Release()
		history := other.history(t, t.Context())
		switch {
		case c.clears() && len(history) == 0:
			b.saved = nil
		case c.saves():
			b.unknown = append(b.unknown, "late")
			if i := slices.Index(history, "late"); i >= 0 && i != len(history)-1 {
				t.Errorf("%s: %q, where the late one is not the last", x.key, history)
			}
		}
		b.check(t, history)
		b.mustSave(t, t.Context(), other, "after")
		if again := other.history(t, t.Context()); !slices.Equal(again, append(history, "after")) {
			t.Errorf("%s: the history was %q and is %q", x.key, history, again)
		}
		return
	}
	next := other.begin(t)
	if err := access(next, b); err != nil {
		t.Errorf("%s: the next holder: %v", x.key, err)
	}
	if after {
		next.mustEnd(t)
		packet.Release()
	} else {
		packet.Release()
		b.mustSave(t, next.ctx, next.session, "after")
		next.mustEnd(t)
	}
	history := other.history(t, t.Context())
	b.check(t, history)
}
