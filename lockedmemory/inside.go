package lockedmemory

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// A call that is made inside a turn, but with the context from outside, would wait for the turn it is part of. That context
// does not tell: goroutines may share it and take turns on one session. The goroutine does: while it runs the function of the
// turn, it can be nowhere else. So a turn notes the goroutine that it runs in, and a call whose context knows of no turn, although
// one of its session runs in the process, looks whether that is its own. This tells a mistake from a wait, and nothing else: it lets
// nobody in.

// session tells turns apart as leases are told apart.
type session struct {
	locker *distlock.Locker
	key    string
}

// running are the turns in this process whose functions have not returned.
var running = runs{of: make(map[session]*run)}

type runs struct {
	mu sync.Mutex
	of map[session]*run
}

// run is one turn that runs. A session has several where leases were lost, where turns are nested, or without the lock.
type run struct {
	goroutine uint64
	since     time.Time
	next      *run
}

// do runs fn as the function of a turn.
func (r *runs) do(ctx context.Context, s session, fn func(context.Context) error) error {
	this := &run{goroutine: goroutine(), since: time.Now()}
	r.begin(s, this)
	defer r.end(s, this)
	return fn(ctx)
}

func (r *runs) begin(s session, this *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	this.next, r.of[s] = r.of[s], this
}

func (r *runs) end(s session, this *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[s] == this {
		if r.of[s] = this.next; this.next == nil {
			delete(r.of, s)
		}
		return
	}
	for other := r.of[s]; other != nil; other = other.next {
		if other.next == this {
			other.next = this.next
		}
	}
}

func (r *runs) any(s session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[s] != nil
}

// around returns the turn of a session from inside which the caller calls, or nil. It belongs to the caller's own goroutine, so it
// does not end meanwhile.
func (r *runs) around(s session) *run {
	own := goroutine()
	r.mu.Lock()
	defer r.mu.Unlock()
	for this := r.of[s]; this != nil; this = this.next {
		if this.goroutine == own && own != 0 {
			return this
		}
	}
	return nil
}

// outside refuses a call that is made inside a turn of its session, but not with that turn's context.
func (m *LockedMemory[M, D]) outside(ctx context.Context, op *distlock.Operation) error {
	s := session{m.locker, op.Key}
	if !running.any(s) {
		return nil
	}
	if _, ok := m.locker.FromContext(ctx, op.Key); ok || ctx.Value(unlockedKey(s)) != nil {
		return nil
	}
	this := running.around(s)
	if this == nil {
		return nil
	}
	op.Outcome = distlock.OutcomeBusy // it has not waited
	return &distlock.BusyError{Self: true, Holder: fencing.Options(m.locker).Holder, Held: time.Since(this.since)}
}

// goroutine is the ID of the calling goroutine, which the first line of its stack shows: "goroutine 42 [running]:". 0: it
// does not, and then nobody is known to wait for itself.
func goroutine() (id uint64) {
	var line [64]byte
	text, _ := strings.CutPrefix(string(line[:runtime.Stack(line[:], false)]), "goroutine ")
	digits, _, _ := strings.Cut(text, " ")
	id, _ = strconv.ParseUint(digits, 10, 64)
	return id
}
