package scenario

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	child.Serve(Roles())
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// newBench makes a Bench with rounds in which no figure means anything.
func newBench(t *testing.T, names ...string) *Bench {
	t.Helper()
	s := servers.StartRedis(t)
	p := servers.SharedPostgres(t).NewDatabase(t) // without fsync
	if err := subject.PreparePostgres(t.Context(), p.URL()); err != nil {
		t.Fatal(err)
	}
	hurried := Rounds{N: 2, Window: 400 * time.Millisecond, Settle: 50 * time.Millisecond}
	b := &Bench{Addr: s.Addr(), Postgres: p.URL(), Rounds: &hurried, Progress: func(text string) { t.Log(text) }}
	if slices.ContainsFunc(names, NeedsQuorum) {
		q := servers.StartQuorum(t, 7)
		q.Nodes()[5].Kill()
		q.Nodes()[6].Pause()
		b.Quorum = q.Addrs()
	}
	return b
}

// TestRun_measuresEverySubject runs all scenarios on a real server, as briefly as they can be run.
func TestRun_measuresEverySubject(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome, err := newBench(t, name).Run(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range outcome.Subjects {
				if !slices.ContainsFunc(outcome.Columns, func(c Column) bool { return len(c.Values[s]) > 0 }) {
					t.Errorf("nothing was measured of %s", s)
				}
			}
			for _, r := range outcome.Ratios {
				if !(r.Median >= 0) || r.Min > r.Median || r.Median > r.Max {
					t.Errorf("%s is %v", r.Key, r.Spread)
				}
			}
		})
	}
}

func TestRun_endsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, Names()...)
	b.Rounds.Window = time.Minute
	why := errors.New("interrupted")
	for _, name := range Names() {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
		began := time.Now()
		if _, err := b.Run(ctx, name); !errors.Is(err, why) || time.Since(began) > 30*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(began))
		}
		cancel(nil)
	}
}

func TestRatio_isOfTheSameRound(t *testing.T) {
	column := Column{Key: "us", Values: Figures{subject.Ours: {2, 12, 9}, subject.Bsm: {1, 3, 3}, subject.Redsync: {1, 1, 1}, subject.Raw: {9, 9, 9}}}
	for _, c := range []struct {
		ratio   Ratio
		against string
		want    Spread
		met     bool
	}{
		{atMost("vs_bsm", 3, "us", subject.Ours, subject.Bsm), subject.Bsm, Spread{3, 2, 4}, true},
		{atMost("vs_bsm", 2.9, "us", subject.Ours, subject.Bsm), subject.Bsm, Spread{3, 2, 4}, false},
		{atLeast("vs_best", 3, "us", subject.Ours, bestPeer), subject.Bsm, Spread{3, 2, 4}, true},
	} {
		if got := c.ratio.of([]Column{{Key: "other"}, column}); got.Spread != c.want || got.Against != c.against || got.Met() != c.met {
			t.Errorf("got %+v, want %+v", got, c)
		}
	}
	if none := atMost("none", 1, "us", subject.Ideal, "").of([]Column{column}); none.Met() || !math.IsNaN(none.Median) {
		t.Errorf("a ratio of nothing meets its bar: %+v", none)
	}
}

func TestQuantile_isNearestRank(t *testing.T) {
	var times []time.Duration
	for i := 100; i >= 1; i-- {
		times = append(times, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := quantile(times, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}
