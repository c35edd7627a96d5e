package belugarunner_test

import (
	"context"
	"fmt"
	"regexp"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// long is a question of 250 tokens: 16 turns of it and its answer are more than the default of History.
var long = strings.Repeat("why? ", 200)

var netBytes = regexp.MustCompile(`total_net_\w+_bytes:(\d+)`)

// A run costs the same at turn 20 and long after: requests, bytes between client and server, and memory.
// Requests of renewals and of the test itself count, too.
func TestRunner_cost_staysTheSame(t *testing.T) {
	server := servers.StartRedis(t)
	r := newRunner(t, answers(echo), server.URL())
	runs := func(from, to int) {
		for n := from; n < to; n++ {
			talk(t, r, "s", fmt.Sprintf("%08d %s", n, long))
		}
	}
	type costs struct{ requests, net, allocated int }
	spent := func() costs {
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		all := costs{requests: requests(t, server), allocated: int(m.TotalAlloc)}
		for _, n := range netBytes.FindAllStringSubmatch(must2(server.Do("INFO", "stats")), -1) {
			all.net += must2(strconv.Atoi(n[1]))
		}
		return all
	}
	const sampled = 20
	at := func(turn int) costs {
		begin := spent()
		runs(turn, turn+sampled)
		end := spent()
		return costs{(end.requests - begin.requests) / sampled, (end.net - begin.net) / sampled, (end.allocated - begin.allocated) / sampled}
	}
	const later = 600
	runs(0, 20)
	early := at(20)
	runs(20+sampled, later)
	late := at(later)
	if late.requests > early.requests || late.net > early.net*11/10 || late.allocated > early.allocated*13/10 {
		t.Errorf("a run costs %+v at turn 20, and %+v at turn %d", early, late, later)
	}
}

// A run reads the newest turns, and its Update leaves the others as they are.
func TestRunner_O_unreadTurns_stay(t *testing.T) {
	for name, url := range belugarunner.Backends(t) {
		t.Run(name, func(t *testing.T) {
			var seen []int
			change := func(s *runtime.Session) {}
			plugin := &hooks{before: func(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
				seen = append(seen, len(s.Turns))
				change(s)
				return input, nil
			}}
			r := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: "unread", History: 40, Plugins: []runtime.Plugin{plugin}})
			talk(t, r, "s", "0", "1", "2", "3", "4", "5") // 8 tokens for two messages, and about 4 for their texts
			if want := "[0 1 2 3 3 3]"; fmt.Sprint(seen) != want {
				t.Errorf("plugins have seen %v turns, want %s", seen, want)
			}
			after := func(input, want string) {
				t.Helper()
				talk(t, r, "s", input)
				if got := said(t, r, "s"); got != want {
					t.Errorf("the session has %s, want %s", got, want)
				}
			}
			change = func(s *runtime.Session) { s.Turns[0].Input = schema.NewHumanMessage("edited") }
			after("6", "0 1 2 edited 4 5 6")
			change = func(s *runtime.Session) { s.Turns = s.Turns[len(s.Turns)-1:] }
			after("7", "0 1 2 6 7")
			change = func(*runtime.Session) {}
			after("8", "0 1 2 6 7 8")
		})
	}
}

func TestMaxTurns_keepsTheNewest(t *testing.T) {
	for name, url := range belugarunner.Backends(t) {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, answers(echo), url, belugarunner.Options{Namespace: "max", MaxTurns: 3})
			for n := range 9 {
				talk(t, r, "s", fmt.Sprint(n))
			}
			if got := said(t, r, "s"); got != "5 6 7 8" { // a run removes the turns before its own
				t.Errorf("the session has %s", got)
			}
			session, err := r.Sessions().Get(t.Context(), "s")
			must(t, err)
			if session.AgentID != "agent" || session.CreatedAt.IsZero() {
				t.Errorf("the session is %+v", session)
			}
		})
	}
}
