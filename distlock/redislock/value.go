package redislock

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
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

func replyOf(parts []any) *redisconn.Reply { return &redisconn.Reply{Parts: parts, Unknown: errReply} }

// shown reads a record, the TTL of its key, and the server's time in µs.
func shown(r *redisconn.Reply) (rec record, ttl time.Duration, now int64) {
	text := r.Text()
	ms := r.Integer() // negative: none
	s, sErr := strconv.ParseInt(r.Text(), 10, 64)
	us, usErr := strconv.ParseInt(r.Text(), 10, 64)
	if sErr != nil || usErr != nil || s < 0 || s > driver.MaxFence/1e6 || us < 0 || us >= 1e6 {
		r.Err = errReply
	}
	if r.Err == nil {
		rec, r.Err = parseRecord(text)
	}
	return rec, time.Duration(ms) * time.Millisecond, s*1e6 + us
}

var outcomes = map[string]driver.Outcome{
	"granted": driver.Granted, "busy": driver.Busy, "full": driver.Full, "cancelled": driver.Cancelled,
}

// parseAcquire reads the reply of acquirefull.lua.
func parseAcquire(parts []any) (driver.AcquireReply, error) {
	r := replyOf(parts)
	outcome, known := outcomes[r.Text()]
	a := driver.AcquireReply{Outcome: outcome}
	switch {
	case !known:
		return a, errReply
	case outcome == driver.Granted:
		a.Fence, a.FenceEnd = r.Block(r.Number(), r.Number())
		a.Waiters = int(r.Number())
	case outcome != driver.Cancelled:
		rec, ttl, now := shown(r)
		waiters := int(r.Number())
		a.Ticket = r.Number()
		if r.Err == nil {
			a.State, r.Err = rec.state(ttl, now, waiters)
		}
	}
	if err := r.End(); err != nil {
		return driver.AcquireReply{}, err
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
	r := replyOf(parts)
	if r.Text() != "busy" {
		return a, false, errReply
	}
	rec, ttl, now := shown(r)
	if r.Err != nil {
		return a, false, r.Err
	}
	if a.State, err = rec.state(ttl, now, 0); err != nil {
		return a, false, err
	}
	another := a.State.Held && rec.owner != req.Owner && rec.previous != req.Owner
	return a, another && !rec.flagged && req.Alive == 0, nil
}
