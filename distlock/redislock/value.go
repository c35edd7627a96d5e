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

// parseAcquire reads the reply of acquire.lua.
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
