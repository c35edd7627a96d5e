package scenario

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/childproc"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) {
	childproc.Serve(Roles())
	leakcheck.VerifyTestMain(testservers.Sharing{M: m})
}

// hurried is a pace at which no figure means anything.
var hurried = Pace{
	Serial:   Rounds{N: 2, Window: 10 * time.Millisecond},
	Tracing:  Rounds{N: 1, Window: 10 * time.Millisecond},
	Parallel: Rounds{N: 1, Window: 50 * time.Millisecond, Settle: 10 * time.Millisecond},
	Local:    Rounds{N: 1, Window: 50 * time.Millisecond, Settle: 10 * time.Millisecond},
	Cross:    Rounds{N: 1, Window: 400 * time.Millisecond, Settle: 50 * time.Millisecond},
	Handoff:  Rounds{N: 1, Window: 100 * time.Millisecond},
	Idle:     Rounds{N: 1, Window: 300 * time.Millisecond, Settle: 200 * time.Millisecond},
	Store:    Rounds{N: 1, Window: 10 * time.Millisecond},
	History:  Rounds{N: 2, Window: 10 * time.Millisecond},

	RedlockSerial: Rounds{N: 1, Window: 10 * time.Millisecond},
	RedlockCross:  Rounds{N: 1, Window: 400 * time.Millisecond, Settle: 50 * time.Millisecond},
	RedlockVotes:  Rounds{N: 2},

	PgSerial:  Rounds{N: 1, Window: 10 * time.Millisecond},
	PgCross:   Rounds{N: 1, Window: 400 * time.Millisecond, Settle: 50 * time.Millisecond},
	PgWaiters: Rounds{N: 1, Window: 100 * time.Millisecond},
	PgSave:    Rounds{N: 1, Window: 10 * time.Millisecond},
	PgNotify:  Rounds{N: 1, Window: 200 * time.Millisecond, Settle: 50 * time.Millisecond},
	PgRenew:   Rounds{N: 1, Window: 10 * time.Millisecond},
}

// newBench makes a Bench for the scenarios of these names.
func newBench(t *testing.T, names ...string) *Bench {
	t.Helper()
	s := testservers.StartRedis(t, ServerArgs...)
	p := testservers.SharedPostgres(t).NewDatabase(t) // without fsync
	if err := subject.PreparePostgres(t.Context(), p.URL()); err != nil {
		t.Fatal(err)
	}
	b := &Bench{Addr: s.Addr(), Postgres: p.URL(), Pace: hurried, longTurns: 5000, leases: 50, Progress: func(text string) { t.Log(text) }}
	if slices.ContainsFunc(names, NeedsQuorum) {
		b.Quorum = NewQuorum(testservers.StartQuorum(t, QuorumServers))
	}
	return b
}

// TestRun_measuresEverySubject runs all scenarios on a real server, as briefly as they can be run.
func TestRun_measuresEverySubject(t *testing.T) {
	t.Parallel()
	ratios := map[string][]string{
		"serial":   {"serial_vs_raw", "serial_vs_redislock", "serial_redis_vs_raw"},
		"tracing":  {"tracing_off_vs_none", "tracing_on_vs_none", "tracing_sync_vs_none"},
		"parallel": {"parallel_vs_best_peer", "parallel_redis_vs_raw"},
		"local":    {"local_vs_best_peer"},
		"cross": {"cross_vs_ideal", "cross_p99_wait_vs_fair", "cross_max_wait_vs_fair", "cross_calls_per_acquisition",
			"cross_min_max_share"},
		"handoff": {"handoff_vs_rtt"},
		"idle":    {"idle_calls_per_waiter_per_s"},
		"store": {"save_vs_xadd", "turn_save_vs_xadd", "turn_id_save_vs_xadd", "load_1000_vs_lrange", "append_100k_vs_10",
			"turn_append_100k_vs_10"},
		"history": {"answered_round_trips", "last_20_100k_vs_100", "replace_1_of_1000_vs_pipeline", "replace_1000_vs_pipeline",
			"longest_step_ms"},
		"redlock_serial": {"redlock_vs_redsync", "redlock_far_vs_redsync", "redlock_one_dead_vs_all_up", "redlock_one_hung_vs_all_up"},
		"redlock_cross":  {"redlock_contended_vs_redsync"},
		"redlock_votes":  {"redlock_rounds_without_winner"},
		"pg_serial":      {"pg_serial_vs_raw"},
		"pg_cross":       {"pg_cross_vs_ideal"},
		"pg_waiters":     {"pg_connections_1000_waiters"},
		"pg_save":        {"pg_save_vs_insert"},
		"pg_notify":      {"pg_notify_tax", "pg_contended_vs_free"},
		"pg_renew":       {"pg_renew_1000_ms"},
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome, err := newBench(t, name).Run(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			subjects := subject.Contended()
			switch name {
			case "tracing":
				subjects = []string{subject.Unobserved, subject.TracingOff, subject.TracingOn, subject.TracingSync, subject.Woken}
			case "store":
				subjects = []string{subject.Ours, subject.BsmStream, subject.Stream, subject.List}
			case "history":
				subjects = []string{subject.Ours, subject.Stream}
			case "redlock_serial":
				subjects = []string{subject.OursQuorum, subject.OursOneDead, subject.OursOneHung, subject.RedsyncQuorum, subject.RedsyncFast, subject.OursFar, subject.RedsyncFar}
			case "redlock_cross", "redlock_votes":
				subjects = []string{subject.OursQuorum, subject.RedsyncQuorum}
			case "pg_serial":
				subjects = []string{subject.OursPostgres, subject.Cirello, subject.Allisson, subject.Updates, subject.UpdatesUnflushed}
			case "pg_cross":
				subjects = []string{subject.OursPostgres, subject.Cirello, subject.Allisson}
			case "pg_save":
				subjects = []string{subject.OursPostgres, subject.Insert}
			case "pg_waiters", "pg_notify", "pg_renew":
				subjects = []string{subject.OursPostgres}
			}
			for _, s := range subjects {
				if s != subject.BsmEager && !slices.ContainsFunc(outcome.Rows, func(r Row) bool { return r.Subject == s && len(r.Cells) > 0 }) {
					t.Errorf("%s: nothing was measured of %s", name, s)
				}
			}
			var keys []string
			for _, r := range outcome.Ratios {
				keys = append(keys, r.Key)
				if !(r.Median >= 0) || r.Min > r.Median || r.Median > r.Max {
					t.Errorf("%s is %v", r.Key, r.Spread)
				}
			}
			if !slices.Equal(keys, ratios[name]) {
				t.Errorf("%s: ratios %q, want %q", name, keys, ratios[name])
			}
		})
	}
}

func TestRun_endsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, Names()...)
	why := errors.New("interrupted")
	for _, name := range Names() {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
		b.Pace.Serial.Window = time.Minute
		began := time.Now()
		_, err := b.Run(ctx, name)
		if took := time.Since(began); took > 30*time.Second || err != nil && !errors.Is(err, why) {
			t.Errorf("%s: %v after %v", name, err, took)
		}
		cancel(nil)
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		list string
		want []string
	}{
		{"", Names()},
		{"serial", []string{"serial"}},
		{"idle, cross,idle", []string{"idle", "cross"}},
	} {
		if got, err := Select(c.list); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v, want %q", c.list, got, err, c.want)
		}
	}
	const want = `no scenario is called "fast", there are: serial, tracing, parallel, local, cross, handoff, idle, store, history, ` +
		`redlock_serial, redlock_cross, redlock_votes, pg_serial, pg_cross, pg_waiters, pg_save, pg_notify, pg_renew`
	if _, err := Select("serial,fast"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRotated_changesWhoIsFirst(t *testing.T) {
	list := []string{"a", "b", "c"}
	for n, want := range [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"a", "b", "c"}} {
		if got := rotated(list, n); !slices.Equal(got, want) {
			t.Errorf("rotated by %d: %q, want %q", n, got, want)
		}
	}
}
