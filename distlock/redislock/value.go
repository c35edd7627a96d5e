package redislock

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// payload shows a holder or a waiter to others. ask.lua reads the work in it, and adds Asked as the first
// key.
type payload struct {
	Asked    int64             `json:"a,string,omitempty"` // the token of the last ask
	Holder   string            `json:"h,omitempty"`
	Metadata map[string]string `json:"m,omitempty"`
}

func encodePayload(holder string, metadata map[string]string) string {
	text, _ := json.Marshal(payload{Holder: holder, Metadata: metadata}) // strings alone: it cannot fail
	return string(text)
}

var errReply = redisconn.UnknownReply("redislock")

func replyOf(parts []any) *redisconn.Reply { return &redisconn.Reply{Parts: parts, Unknown: errReply} }

// readRecord reads a record, the TTL of its key, and the server's time in µs.
func readRecord(r *redisconn.Reply) (rec record, ttl time.Duration, now int64) {
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
	"busy": driver.Busy, "full": driver.Full, "cancelled": driver.Cancelled,
}

// parseAcquire reads the reply of acquire.lua.
func parseAcquire(reply any) (driver.AcquireReply, error) {
	if text, ok := reply.(string); ok {
		return parseGrant(text)
	}
	parts, _ := reply.([]any)
	r := replyOf(parts)
	outcome, known := outcomes[r.Text()]
	a := driver.AcquireReply{Outcome: outcome}
	if !known {
		return a, errReply
	}
	if outcome != driver.Cancelled {
		rec, ttl, now := readRecord(r)
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

// isBlock reports whether a grant can have the tokens from fence to end.
func isBlock(fence, end int64) bool { return fence >= 1 && fence <= end && end <= driver.MaxFence }

// parseGrant reads a grant: its token and the last one of its block in 16 digits each, then the waiters.
func parseGrant(text string) (driver.AcquireReply, error) {
	if len(text) < 33 {
		return driver.AcquireReply{}, errReply
	}
	numbers, err := parseNumbers(text[:16], text[16:32], text[32:])
	if err != nil || !isBlock(numbers[0], numbers[1]) {
		return driver.AcquireReply{}, errReply
	}
	return driver.AcquireReply{Outcome: driver.Granted, Fence: numbers[0], FenceEnd: numbers[1], Waiters: int(numbers[2])}, nil
}

// parseWake reads a message of lua/queue.lua:
// "<owner> <seq> <ttl, ms> <waiters> <token> <last token of the block>".
func parseWake(message string) (owner string, wake driver.Wake, err error) {
	var ttl int64
	g := driver.AcquireReply{Outcome: driver.Granted}
	n, _ := fmt.Sscan(message, &owner, &wake.Seq, &ttl, &g.Waiters, &g.Fence, &g.FenceEnd, new(string))
	if n != 6 || wake.Seq < 0 || ttl < 0 || ttl > (365*24*time.Hour).Milliseconds() ||
		g.Waiters < 0 || !isBlock(g.Fence, g.FenceEnd) {
		return "", driver.Wake{}, errReply
	}
	wake.TTL, wake.Grant = time.Duration(ttl)*time.Millisecond, g
	return owner, wake, nil
}
