package trust

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestGranted_N_endsBeforeBackend(t *testing.T) {
	start := Now()
	for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second, 24 * time.Hour} {
		left := ttl - Granted(start, ttl).Left(start)
		if least := ttl/100 + 2*time.Millisecond + 5*time.Millisecond; left < least || left > ttl/5 {
			t.Errorf("TTL %s: trust ends %s before it", ttl, left)
		}
	}
}

// An extension that was sent now, and a deadline 20 s away.
func TestTrust_N_whatMovesTheDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		ttl   time.Duration
		moves bool // the deadline to the end of the TTL
	}{
		"prolonged":         {ttl: 30 * time.Second, moves: true},
		"less than is left": {ttl: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			sent := Moment{at: time.Hour}
			trust := Trust{deadline: Moment{at: sent.at + 20*time.Second}, term: 30 * time.Second}
			want := trust.deadline
			trust.Extended(sent, c.ttl)
			if c.moves {
				want = Granted(sent, c.ttl).deadline
			}
			if trust.deadline != want {
				t.Errorf("%+v, want %+v", trust.deadline, want)
			}
		})
	}
}

func TestTrust_worn(t *testing.T) {
	trust := Granted(Moment{}, 30*time.Second)
	quarter := trust.deadline.Add(-30 * time.Second / 4)
	if trust.TooLittleLeft(quarter) || !trust.TooLittleLeft(quarter.Add(1)) ||
		trust.Over(trust.deadline.Add(-1)) || !trust.Over(trust.deadline) {
		t.Errorf("a quarter of the term, or the end, comes at another moment")
	}
}

func TestTrust_schedule(t *testing.T) {
	const ttl, period = 30 * time.Second, 10 * time.Second
	whole := Granted(Moment{}, ttl)
	rest := Granted(Moment{}, 3*time.Second)
	near := whole.deadline.Add(-400 * time.Millisecond)
	for name, c := range map[string]struct{ got, want time.Duration }{
		"first renewal of a whole TTL": {whole.FirstRenewal(Moment{at: time.Second}, ttl, period).at, period},
		"first renewal of the rest":    {rest.FirstRenewal(Moment{}, ttl, period).at, Full(3*time.Second) / 3},
		"retry":                        {whole.Retry(Moment{}, period).at, period / 4},
		"retry near the deadline":      {whole.Retry(near, period).Sub(near), 100 * time.Millisecond},
		"retry at the deadline":        {whole.Retry(whole.deadline, period).Sub(whole.deadline), time.Millisecond},
		"patience":                     {whole.Patience(Moment{}, period), period / 2},
		"patience near the deadline":   {whole.Patience(near, period), 200 * time.Millisecond},
		"patience close to the deadline": {
			whole.Patience(whole.deadline.Add(-time.Millisecond), period), 25 * time.Millisecond},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}

// request is an extension under way.
type request struct {
	sent    Moment
	ttl     time.Duration
	handled bool
	held    bool
}

// Requests are handled and answered late and in any order, and lose answers.
// While the holder trusts its lease, the backend has not expired the lock.
func TestTrust_N_neverOutlivesBackend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ttl = 30 * time.Second
		span := func(most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "span"))
		}
		now := Moment{at: span(time.Second)}
		expiry := now.Add(ttl)
		trust := Granted(Moment{}, ttl)
		var underway []*request
		for range 60 {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				now = now.Add(span(ttl / 4))
			case 1: // a renewal
				underway = append(underway, &request{sent: now, ttl: ttl})
			case 2: // an Extend
				underway = append(underway, &request{sent: now, ttl: time.Second + span(2*ttl)})
			case 3, 4: // the backend handles a request
				if i := rapid.IntRange(0, len(underway)).Draw(t, "request"); i < len(underway) && !underway[i].handled {
					r := underway[i]
					r.handled, r.held = true, now.Before(expiry)
					if end := now.Add(r.ttl); r.held && expiry.Before(end) {
						expiry = end
					}
				}
			case 5: // an answer arrives, or is given up
				i := rapid.IntRange(0, len(underway)).Draw(t, "answer")
				if i == len(underway) {
					break
				}
				r := underway[i]
				if lost := rapid.Bool().Draw(t, "lost"); r.handled && !lost {
					if underway = slices.Delete(underway, i, i+1); r.held {
						trust.Extended(r.sent, r.ttl)
					}
				}
			}
			if !trust.Over(now) && !now.Before(expiry) {
				t.Fatalf("trusted for another %s, but expired %s ago", trust.Left(now), now.Sub(expiry))
			}
		}
	})
}

func TestClock_N_runsDuringSuspend(t *testing.T) {
	suspended, ran, before := Suspended, WallRan, Now()
	defer func() { Suspended, WallRan = suspended, ran }()
	Suspended = func() time.Duration { return suspended() + time.Hour }
	WallRan = func(t time.Time) time.Duration { return ran(t) + time.Hour }
	if asleep := Now().Sub(before); asleep < time.Hour {
		t.Errorf("the clock ran for %s during a suspend of an hour", asleep)
	}
}

func TestClock_neverGoesBack_ignoresShortReadings(t *testing.T) {
	var s sleeping
	for _, c := range []struct{ seen, want time.Duration }{
		{-300, 0}, {5 * time.Millisecond, 5 * time.Millisecond}, {5*time.Millisecond + 900, 5 * time.Millisecond},
		{-time.Second, 5 * time.Millisecond}, {time.Hour, time.Hour}, {time.Minute, time.Hour},
	} {
		s.observe(c.seen)
		if got := time.Duration(s.longest.Load()); got != c.want {
			t.Errorf("after %s: %s, want %s", c.seen, got, c.want)
		}
	}
}

// beforeStart is how long the machine was suspended before the process started, for all tests.
const beforeStart = time.Hour

// Variables are set before init runs.
var _ = func() bool {
	real := Suspended
	Suspended = func() time.Duration { return beforeStart + real() }
	return true
}()

// sleptAtStart is the first value of the clock. This init runs after the init of clock.go.
var sleptAtStart time.Duration

func init() { sleptAtStart = time.Duration(slept.longest.Load()) }

// Otherwise the clock would jump at the first correction of the wall clock, and all leases would be lost.
func TestClock_N_suspendBeforeStartDoesNotCount(t *testing.T) {
	if sleptAtStart < beforeStart-time.Second { // a reading is not exact
		t.Errorf("the clock began with %s, of %s that the machine had been suspended for", sleptAtStart, beforeStart)
	}
}

func TestClock_N_slowReading_readsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		real := Suspended
		defer func() { Suspended = real }()
		var s sleeping
		Suspended = func() time.Duration { time.Sleep(2 * pace); return time.Minute }
		s.readIfWallMoved(time.Hour)
		Suspended = func() time.Duration { return time.Hour }
		if s.readIfWallMoved(time.Hour); time.Duration(s.longest.Load()) != time.Hour {
			t.Errorf("suspended for %s, by a reading during which the thread paused", time.Duration(s.longest.Load()))
		}
	})
}

func TestClock_N_readsAgainWhenWallClockLeavesPace(t *testing.T) { synctest.Test(t, readsAgain) }

func readsAgain(t *testing.T) {
	real := Suspended
	defer func() { Suspended = real }()
	var s sleeping
	reads, asleep := 0, time.Duration(0)
	Suspended = func() time.Duration { reads++; return asleep }
	for i, c := range []struct {
		wall  time.Duration // has run ahead of the monotonic clock by so much, since the start
		reads bool
	}{
		{0, false},
		{pace - 1, false},
		{1 - pace, false},
		{pace, true},
		{pace, false},
		{2*pace - 1, false},
		{1, false}, // near the last reading, which was at pace
		{0, true},
		{-pace, true}, // stepped back
		{-2*pace + 1, false},
		{-time.Hour, true},
		{-time.Hour + pace - 1, false},
		{time.Hour, true},
		{time.Hour, false},
	} {
		before := reads
		asleep += time.Minute
		if s.readIfWallMoved(c.wall); reads > before != c.reads || reads > before+1 {
			t.Errorf("step %d, wall clock %s ahead: read %d times, want %t", i, c.wall, reads-before, c.reads)
		}
		if got := time.Duration(s.longest.Load()); c.reads && got != asleep {
			t.Errorf("step %d: suspended for %s, want %s", i, got, asleep)
		}
	}
}
