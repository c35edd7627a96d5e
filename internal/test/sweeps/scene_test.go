package sweeps

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

func TestMain(m *testing.M) {
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(m)
}

const (
	ttl  = 30 * time.Second
	wait = 5 * time.Second
	// secret is a part of whatever is personal: of keys, messages and turn IDs. No error shows it.
	secret = "s3kr1t"
)

// instance is what one process has.
type instance struct {
	locker *distlock.Locker
	store  *sessionstore.Store[string, string]
	memory *lockedmemory.LockedMemory[string, string]
}

// scene is one run of one call.
type scene struct {
	testing.TB
	point  *point
	key    string
	faulty instance // whose services fail
	sound  instance // another process, whose do not
	settle func()   // waits until what the call has left to the background is done
	soon   time.Duration
	ctx    context.Context
	wait   time.Duration // of the call

	awaitQueued func() // waits until a caller of the faulty instance is in the queue, with no call under way
	unblocked   func() // waits until the holder before has gone

	err   error           // what the call has returned
	lease *distlock.Lease // what it has got, if it gets one
	saved []string        // the acknowledged messages
	maybe []string        // what may be there or not
	later func()          // to be done when the turn is over
	clear bool            // the call was a Clear, and so all that was there before may be gone
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// sweep makes the call, under the faults.
func (s *scene) sweep(ctx context.Context, call func(ctx context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.point.cancel = cancel
	s.point.arm(true)
	s.err = call(ctx)
	if s.point.kind.onwards {
		s.point.arm(false)
	} else {
		s.settle() // clean-ups fail as well
		s.point.arm(false)
	}
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v", err)
	}
}

// hold acquires the lock through the faulty instance, before the faults.
func (s *scene) hold() *distlock.Lease {
	s.Helper()
	lease, err := s.faulty.locker.Acquire(s.ctx, s.key)
	s.must(err)
	return lease
}

// blocked has the other process hold the lock for a while.
func (s *scene) blocked() {
	s.Helper()
	lease, err := s.sound.locker.Acquire(s.ctx, s.key)
	s.must(err)
	gone := make(chan struct{})
	s.unblocked = func() { <-gone }
	time.AfterFunc(10*time.Millisecond, func() {
		defer close(gone)
		if err := lease.Release(context.Background()); err != nil {
			s.Errorf("the release of the holder before: %v", err)
		}
	})
}

// save saves an exchange and takes down what came of it.
func (s *scene) save(ctx context.Context, m interface {
	Save(ctx context.Context, input, output string) error
}, text string) error {
	return s.note(text, m.Save(ctx, text, answer(text)))
}

// saveOnce saves a text under its ID.
func (s *scene) saveOnce(ctx context.Context, text string) error {
	return s.note(text, s.faulty.memory.SaveOnce(ctx, text+"-id", text, answer(text)))
}

func (s *scene) note(text string, err error) error {
	switch {
	case err == nil:
		s.saved = append(s.saved, text)
	case saysPerhaps(err):
		s.maybe = append(s.maybe, text)
	}
	return err
}

func answer(text string) string { return "re: " + text }

// saysPerhaps reports whether an error leaves open whether something was written. All others say
// that nothing was.
func saysPerhaps(err error) bool {
	return errors.Is(err, distlock.ErrOutcomeUnknown)
}

// judge looks at what the call has left.
func (s *scene) judge(allowed ...error) {
	s.Helper()
	s.judgeError(allowed)
	if s.lease != nil && s.err == nil {
		if err := s.lease.Err(); err != nil {
			s.Errorf("the lease was granted, and: %v", err)
		}
		if next, err := s.sound.locker.TryAcquire(s.ctx, s.key); !errors.Is(err, distlock.ErrNotAcquired) {
			s.Errorf("the lock is held, and another instance has got it: %v", err)
			_ = next.Release(s.ctx)
		}
		if err := s.lease.Release(s.ctx); err != nil {
			s.Errorf("the release of the granted lock: %v", err)
		}
		if info, err := s.sound.locker.Inspect(s.ctx, s.key); err != nil || info.Held {
			s.Errorf("after a release that has succeeded: %+v, %v", info, err)
		}
	}
	s.judgeLock()
	s.judgeSession()
}

func (s *scene) judgeError(allowed []error) {
	s.Helper()
	if s.err == nil {
		return
	}
	if strings.Contains(s.err.Error(), secret) {
		s.Errorf("the error shows a key, a message or a turn ID: %v", s.err)
	}
	for _, sentinel := range append(allowed, distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrOutcomeUnknown) {
		if errors.Is(s.err, sentinel) {
			return
		}
	}
	if s.point.kind.cancels && errors.Is(s.err, context.Canceled) || s.point.mayLose() && errors.Is(s.err, distlock.ErrLost) {
		return
	}
	s.Errorf("the error is of no kind that tells what to do: %v", s.err)
}

// judgeLock waits until the lock is free and its queue is empty, and has both instances take it.
func (s *scene) judgeLock() {
	s.Helper()
	var info distlock.Info
	var err error
	if !servers.Within(s.soon, func() bool {
		info, err = s.sound.locker.Inspect(s.ctx, s.key)
		return err == nil && !info.Held && info.Waiters == 0
	}) {
		s.Errorf("%s later the lock is not free: %+v, %v", s.soon, info, err)
		return
	}
	for who, in := range map[string]instance{"the same process": s.faulty, "another one": s.sound} {
		if closed(in) {
			continue
		}
		ran := false
		if err := in.locker.Do(s.ctx, s.key, func(context.Context) error { ran = true; return nil }); err != nil || !ran {
			s.Errorf("the next Do, by %s: %v, ran: %t", who, err, ran)
		}
	}
}

// closed reports whether its Locker was closed by the call.
func closed(in instance) bool {
	_, err := in.locker.Inspect(context.Background(), "x")
	return errors.Is(err, distlock.ErrClosed)
}

// judgeSession saves once more, and compares the stored messages with the answers that the callers
// got.
func (s *scene) judgeSession() {
	s.Helper()
	if closed(s.faulty) {
		return
	}
	s.must(s.save(s.ctx, s.faulty.memory, secret+" next"))
	messages, err := s.sound.memory.Load(s.ctx, "")
	s.must(err)
	var texts []string
	for pair := range slices.Chunk(messages, 2) {
		if len(pair) != 2 || pair[1] != answer(pair[0]) {
			s.Fatalf("torn: %q", messages)
		}
		texts = append(texts, pair[0])
	}
	left, maybe := slices.Clone(s.maybe), 0
	known := slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		i := slices.Index(left, text)
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
			maybe++
		}
		return i >= 0
	})
	if slices.Equal(known, s.saved) || s.clear && slices.Equal(texts, s.saved[len(s.saved)-1:]) {
		return
	}
	s.Errorf("stored is %q; acknowledged was %q, and unknown %q; cleared: %t; the call: %v", texts, s.saved, s.maybe, s.clear, s.err)
}
