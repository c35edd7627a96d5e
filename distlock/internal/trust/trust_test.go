package trust

import (
	"testing"
	"time"
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
