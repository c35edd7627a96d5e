package lockedmemory

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

// A call that is made inside a turn, but with the context from outside, would wait for the turn it is part of. That context
// does not tell: goroutines may share it and take turns on one session. The stack does: the function of the turn is on it. So a
// turn marks the stack that it runs on, and a call whose context knows of no turn looks for the mark.
//
// Goroutines have IDs, which runtime.Stack shows, but to learn its own every turn would have its whole stack formatted: tens
// of microseconds below the handlers of a server. A mark costs next to nothing, and only those read it who find a
// turn of their session under way, and so would wait.

// session tells turns apart as leases are told apart.
type session struct {
	locker *distlock.Locker
	key    string
}

// running are the turns in this process whose functions have not returned.
var running = runs{of: make(map[session]*run)}

type runs struct {
	mu     sync.Mutex
	of     map[session]*run
	unused []uint // numbers that have been in use
	next   uint   // the first that has not
}

// run is one turn that runs. A session has several where leases were lost, where turns are nested, or without the lock.
type run struct {
	number uint // no other turn of the process has it
	since  time.Time
	next   *run
}

// do runs fn as the function of a turn.
func (r *runs) do(ctx context.Context, s session, fn func(context.Context) error) error {
	this := r.begin(s)
	defer r.end(s, this)
	return marked(ctx, this.number, fn)
}

func (r *runs) begin(s session) *run {
	this := &run{since: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.unused) - 1; last >= 0 {
		this.number, r.unused = r.unused[last], r.unused[:last]
	} else {
		this.number = r.next
		r.next++
	}
	this.next, r.of[s] = r.of[s], this
	return this
}

func (r *runs) end(s session, this *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unused = append(r.unused, this.number)
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
// does not end meanwhile, and no other can come to have its number.
func (r *runs) around(s session) *run {
	numbers := marks()
	r.mu.Lock()
	defer r.mu.Unlock()
	for this := r.of[s]; this != nil; this = this.next {
		if numbers[this.number] {
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
	return &distlock.BusyError{Self: true, Holder: m.locker.Options().Holder, Held: time.Since(this.since)}
}

// marked calls fn with the mark n on its stack: the digits of n to the base of 16, the lowest first, each a call of
// digit, and this call in front of them.
//
//go:noinline
func marked(ctx context.Context, n uint, fn func(context.Context) error) error {
	return digit(ctx, n, fn)
}

// digit writes n%16 onto the stack, by the line that it calls from.
//
//go:noinline
func digit(ctx context.Context, n uint, fn func(context.Context) error) error {
	switch n % 16 {
	case 0x0:
		return further(ctx, n, fn)
	case 0x1:
		return further(ctx, n, fn)
	case 0x2:
		return further(ctx, n, fn)
	case 0x3:
		return further(ctx, n, fn)
	case 0x4:
		return further(ctx, n, fn)
	case 0x5:
		return further(ctx, n, fn)
	case 0x6:
		return further(ctx, n, fn)
	case 0x7:
		return further(ctx, n, fn)
	case 0x8:
		return further(ctx, n, fn)
	case 0x9:
		return further(ctx, n, fn)
	case 0xa:
		return further(ctx, n, fn)
	case 0xb:
		return further(ctx, n, fn)
	case 0xc:
		return further(ctx, n, fn)
	case 0xd:
		return further(ctx, n, fn)
	case 0xe:
		return further(ctx, n, fn)
	default:
		return further(ctx, n, fn)
	}
}

func further(ctx context.Context, n uint, fn func(context.Context) error) error {
	if n < 16 {
		return fn(ctx)
	}
	return digit(ctx, n/16, fn)
}

// marks are the marks on the stack of the caller's goroutine.
func marks() map[uint]bool {
	script := script()
	found := make(map[uint]bool)
	if len(script.digits) < 16 { // a build without line numbers: nobody is known to wait on itself, and all just wait
		return found
	}
	n := uint(0)
	for frames := frames(); ; {
		frame, more := frames.Next()
		switch frame.Function {
		case script.digit:
			n = n<<4 | script.digits[frame.Line] // from the inside, the highest is the first
		case script.marked:
			found[n] = true
			n = 0
		}
		if !more {
			return found
		}
	}
}

// script is how marks are read. Writing every digit once teaches it, so it holds for whatever the compiler makes of them.
var script = sync.OnceValue(func() (s struct {
	marked, digit string
	digits        map[int]uint // by line
}) {
	s.marked, s.digit = name(marked), name(digit)
	s.digits = make(map[int]uint)
	for n := range uint(16) {
		_ = marked(context.Background(), n, func(context.Context) error {
			for frames := frames(); ; {
				if frame, more := frames.Next(); frame.Function == s.digit || !more {
					s.digits[frame.Line] = n
					return nil
				}
			}
		})
	}
	return s
})

// name is the name that a function has on stacks.
func name(f any) string { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() }

// frames are those of the caller's goroutine, all of them, the innermost first.
func frames() *runtime.Frames {
	for size := 64; ; size *= 2 {
		pcs := make([]uintptr, size)
		if n := runtime.Callers(0, pcs); n < size {
			return runtime.CallersFrames(pcs[:n])
		}
	}
}
