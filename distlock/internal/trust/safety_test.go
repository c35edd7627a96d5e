package trust

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
