package belugarunner_test

import (
	"context"
	"fmt"
	"regexp"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// long is a question of 250 tokens: 16 turns of it and its answer are more than the default of History.
var long = strings.Repeat("why? ", 200)

// runs makes turns of a session, up to the given number.
func runs(t testing.TB, r *belugarunner.Runner, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		succeeds(t)(say(t.Context(), r, "s", fmt.Sprintf("%08d %s", n, long)))
	}
}

// netBytes returns the bytes that the server has received and sent.
func netBytes(t testing.TB, server *servers.Redis) (sum int) {
	t.Helper()
	info, err := server.Do("INFO", "stats")
	must(t, err)
	for _, n := range regexp.MustCompile(`total_net_\w+_bytes:(\d+)`).FindAllStringSubmatch(info, -1) {
		sum += must2(strconv.Atoi(n[1]))
	}
	return sum
}

// spent is what a run has cost. Requests of renewals and of the test itself count, too.
type spent struct{ requests, net, allocated int }

const sampled = 20

// spend returns what a run costs at a turn.
func spend(t *testing.T, r *belugarunner.Runner, server *servers.Redis, turn int) spent {
	t.Helper()
	all := func() spent {
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return spent{requests(t, server), netBytes(t, server), int(m.TotalAlloc)}
	}
	begin := all()
	runs(t, r, turn, turn+sampled)
	end := all()
	return spent{(end.requests - begin.requests) / sampled, (end.net - begin.net) / sampled, (end.allocated - begin.allocated) / sampled}
}

// A run costs the same at turn 20 and long after: requests, bytes between client and server, and memory.
func TestRunner_cost_staysTheSame(t *testing.T) {
	server := servers.StartRedis(t)
	r := newRunner(t, answers(echo), server.URL())
	runs(t, r, 0, 20)
	early := spend(t, r, server, 20)
	const later = 600
	runs(t, r, 20+sampled, later)
	late := spend(t, r, server, later)
	if late.requests > early.requests || late.net > early.net*11/10 || late.allocated > early.allocated*13/10 {
		t.Errorf("a run costs %+v at turn 20, and %+v at turn %d", early, late, later)
	}
}

// BenchmarkRunner_atTurn shows that a run takes as long in a long session as in a short one.
func BenchmarkRunner_atTurn(b *testing.B) {
	for _, turns := range []int{20, 1000} {
		b.Run(strconv.Itoa(turns), func(b *testing.B) {
			r := newRunner(b, answers(echo), servers.StartRedis(b).URL())
			runs(b, r, 0, turns)
			b.ReportAllocs()
			for b.Loop() {
				runs(b, r, turns, turns+1)
			}
		})
	}
}

// A run reads the newest turns, and its Update leaves the others as they are.
func TestRunner_O_unreadTurns_stay(t *testing.T) {
	for name, url := range belugarunner.Backends(t) {
		t.Run(name, func(t *testing.T) {
			var seen []int
			change := func(s *runtime.Session) {}
			r := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: "unread", History: 40, Plugins: []runtime.Plugin{&meddles{before: func(s *runtime.Session, input schema.Message) schema.Message {
				seen = append(seen, len(s.Turns))
				change(s)
				return input
			}}}})
			ask := func(n int) {
				t.Helper()
				succeeds(t)(say(t.Context(), r, "s", fmt.Sprint(n)))
			}
			for n := range 6 {
				ask(n) // 8 tokens for two messages, and about 4 for their texts
			}
			if want := "[0 1 2 3 3 3]"; fmt.Sprint(seen) != want {
				t.Errorf("plugins have seen %v turns, want %s", seen, want)
			}
			change = func(s *runtime.Session) { s.Turns[0].Input = schema.NewHumanMessage("edited") }
			ask(6)
			if got := said(t, t.Context(), r, "s"); got != "0 1 2 edited 4 5 6" {
				t.Errorf("after an edit the session has %s", got)
			}
			change = func(s *runtime.Session) { s.Turns = s.Turns[len(s.Turns)-1:] }
			ask(7)
			if got := said(t, t.Context(), r, "s"); got != "0 1 2 6 7" {
				t.Errorf("after a removal the session has %s", got)
			}
			change = func(*runtime.Session) {}
			ask(8)
			if got := said(t, t.Context(), r, "s"); got != "0 1 2 6 7 8" {
				t.Errorf("later the session has %s", got)
			}
		})
	}
}

func TestMaxTurns_keepsTheNewest(t *testing.T) {
	for name, url := range belugarunner.Backends(t) {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: "max", MaxTurns: 3})
			for n := range 9 {
				succeeds(t)(say(t.Context(), r, "s", fmt.Sprint(n)))
			}
			if got := said(t, t.Context(), r, "s"); got != "5 6 7 8" { // a run removes the turns before its own
				t.Errorf("the session has %s", got)
			}
			session, err := r.Sessions().Get(core.WithSessionID(context.Background(), "s"), "s")
			must(t, err)
			if session.AgentID != "agent" || session.CreatedAt.IsZero() {
				t.Errorf("the session is %+v", session)
			}
		})
	}
}
