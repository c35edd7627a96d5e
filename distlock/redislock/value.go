package redislock

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// payload shows a holder or a waiter to others. Lua does not read it.
type payload struct {
	Holder   string            `json:"h,omitempty"`
	Metadata map[string]string `json:"m,omitempty"`
}

func encodePayload(holder string, metadata map[string]string) string {
	text, _ := json.Marshal(payload{holder, metadata}) // strings alone: it cannot fail
	return string(text)
}

// scriptReply reads the parts of a script's reply in order. It keeps its error.
type scriptReply struct {
	parts []any
	err   error
}

func (r *scriptReply) next() any {
	if len(r.parts) == 0 {
		r.err = errReply
		return nil
	}
	part := r.parts[0]
	r.parts = r.parts[1:]
	return part
}

func (r *scriptReply) text() string {
	text, ok := r.next().(string)
	if !ok {
		r.err = errReply
	}
	return text
}

// number reads a number of at least 0.
func (r *scriptReply) number() int64 {
	n, ok := r.next().(int64)
	if !ok || n < 0 {
		r.err = errReply
	}
	return n
}

// block reads the tokens of a grant.
func (r *scriptReply) block() (fence, end int64) {
	fence, end = r.number(), r.number()
	if fence < 1 || fence > end || end > driver.MaxFence {
		r.err = errReply
	}
	return fence, end
}

// shown reads a record, the TTL of its key, and the server's time in µs.
func (r *scriptReply) shown() (rec record, ttl time.Duration, now int64) {
	text := r.text()
	ms, ok := r.next().(int64) // negative: none
	s, sErr := strconv.ParseInt(r.text(), 10, 64)
	us, usErr := strconv.ParseInt(r.text(), 10, 64)
	if !ok || sErr != nil || usErr != nil || s < 0 || s > driver.MaxFence/1e6 || us < 0 || us >= 1e6 {
		r.err = errReply
	}
	if r.err == nil {
		rec, r.err = parseRecord(text)
	}
	return rec, time.Duration(ms) * time.Millisecond, s*1e6 + us
}

var outcomes = map[string]driver.Outcome{
	"granted": driver.Granted, "busy": driver.Busy, "full": driver.Full, "cancelled": driver.Cancelled,
}

// parseAcquire reads the reply of acquirefull.lua.
func parseAcquire(parts []any) (driver.AcquireReply, error) {
	r := &scriptReply{parts: parts}
	outcome, known := outcomes[r.text()]
	a := driver.AcquireReply{Outcome: outcome}
	switch {
	case !known:
		return a, errReply
	case outcome == driver.Granted:
		a.Fence, a.FenceEnd = r.block()
		a.Waiters = int(r.number())
	case outcome != driver.Cancelled:
		rec, ttl, now := r.shown()
		waiters := int(r.number())
		a.Ticket = r.number()
		if r.err == nil {
			a.State, r.err = rec.state(ttl, now, waiters)
		}
	}
	if r.err == nil && len(r.parts) > 0 {
		r.err = errReply
	}
	if r.err != nil {
		return driver.AcquireReply{}, r.err
	}
	return a, nil
}

// parseFast reads the reply of acquire.lua. It reports false if the full script has to decide.
func parseFast(reply any, req driver.AcquireRequest) (a driver.AcquireReply, final bool, err error) {
	if numbers, ok := reply.(string); ok {
		var rec record
		if numbers == "slow" {
			return a, false, nil
		} else if rec.parseNumbers(numbers) != nil || rec.token < 1 {
			return a, false, errReply
		}
		return driver.AcquireReply{Outcome: driver.Granted, Fence: rec.token, FenceEnd: rec.last}, true, nil
	}
	parts, _ := reply.([]any)
	r := &scriptReply{parts: parts}
	if r.text() != "busy" {
		return a, false, errReply
	}
	rec, ttl, now := r.shown()
	if r.err != nil {
		return a, false, r.err
	}
	if a.State, err = rec.state(ttl, now, 0); err != nil {
		return a, false, err
	}
	another := a.State.Held && rec.owner != req.Owner && rec.previous != req.Owner
	return a, another && !rec.flagged && req.Alive == 0, nil
}
