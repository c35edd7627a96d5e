package trust

import "time"

// Trust is what one grant of the backend, and its extensions, give the holder: a deadline, and what
// is known about it. The zero value trusts nothing.
type Trust struct {
	deadline Moment
	term     time.Duration // the TTL of the grant or extension that gave the deadline
}

// drift is how far the clocks of holder and backend may run apart within one TTL.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Margin is the time between the loss of a lease on the holder's side and the expiry in the backend.
// The holder's work can notice within it that its context was cancelled.
func Margin(ttl time.Duration) time.Duration {
	return min(max(ttl/50, 5*time.Millisecond), 250*time.Millisecond)
}

// Full is the trusted part of a TTL.
func Full(ttl time.Duration) time.Duration { return ttl - drift(ttl) - Margin(ttl) }

// Granted is the trust in a grant for ttl. ⚑ Trust counts from before the request was sent.
func Granted(sent Moment, ttl time.Duration) Trust {
	return Trust{deadline: sent.Add(Full(ttl)), term: ttl}
}

// Deadline is the moment from which the lease is lost.
func (t Trust) Deadline() Moment { return t.deadline }

// Left is the time from at to the deadline.
func (t Trust) Left(at Moment) time.Duration { return t.deadline.Sub(at) }

// Over reports whether the deadline has come.
func (t Trust) Over(at Moment) bool { return !at.Before(t.deadline) }

// Term is the TTL of the grant or extension that gave the deadline.
func (t Trust) Term() time.Duration { return t.term }

// TooLittleLeft reports whether less than a quarter of the term is left: too little to begin work.
func (t Trust) TooLittleLeft(at Moment) bool { return t.Left(at) < t.term/4 }

// Extended moves the deadline after an extension by ttl has succeeded, whose request was sent at sent. The
// deadline never moves back.
func (t *Trust) Extended(sent Moment, ttl time.Duration) {
	if end := Granted(sent, ttl).deadline; t.deadline.Before(end) {
		t.deadline, t.term = end, ttl
	}
}

// FirstRenewal is when a lease is renewed for the first time, of which each renewal asks for ttl. A
// whole TTL leaves a period until then. A lease that begins with less is renewed after a third of the
// rest: early, but most work is done by then.
func (t Trust) FirstRenewal(at Moment, ttl, period time.Duration) Moment {
	if left := t.Left(at); left <= Full(ttl)-period {
		return at.Add(left / 3)
	}
	return t.deadline.Add(period - Full(ttl))
}

// Retry is when a failed renewal is tried again: soon, and while there is time before the deadline.
func (t Trust) Retry(at Moment, period time.Duration) Moment {
	return at.Add(max(min(period, t.Left(at))/4, time.Millisecond))
}

// Patience is how long a renewal that is sent at a moment waits for its answer before it is retried.
func (t Trust) Patience(at Moment, period time.Duration) time.Duration {
	return min(period/2, max(t.Left(at)/2, 25*time.Millisecond))
}
