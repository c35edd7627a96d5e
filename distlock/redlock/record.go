package redlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Places in a record, see lua/record.lua.
const (
	ownerLen   = 32
	numbersAt  = 68
	payloadAt  = 111
	recordMark = "q1"
)

// payload shows a holder to others. Lua does not read it.
type payload struct {
	Holder   string            `json:"h,omitempty"`
	Metadata map[string]string `json:"m,omitempty"`
}

func encodePayload(holder string, metadata map[string]string) string {
	text, _ := json.Marshal(payload{holder, metadata}) // strings alone: it cannot fail
	return string(text)
}

// stateOf shows a record, whose key has the given TTL, at a moment of the server's clock in µs. An
// expired or released record is free. It fails with driver.ErrForeign if the text is no record.
func stateOf(text string, ttl time.Duration, now int64) (quorum.State, error) {
	if len(text) < payloadAt || !strings.HasPrefix(text, recordMark) || !strings.Contains("hr", text[2:3]) || text[3] != '.' {
		return quorum.State{}, foreign("its value is no record of a quorum of this library")
	}
	var numbers [3]int64 // token, keep in ms, since in µs
	at := numbersAt
	for i, width := range []int{16, 11, 16} {
		n, err := strconv.ParseUint(text[at:at+width], 10, 63)
		if err != nil {
			return quorum.State{}, foreign("its record has a damaged number")
		}
		numbers[i] = int64(n)
		at += width
	}
	token, since := numbers[0], numbers[2]
	if token < 1 || token > driver.MaxFence {
		return quorum.State{}, foreign("its record has a token out of range")
	}
	left := ttl - time.Duration(numbers[1])*time.Millisecond // negative if it was restored without a TTL
	if text[2] != 'h' || ttl >= 0 && left <= 0 {
		return quorum.State{}, nil
	}
	var shown payload
	if json.Unmarshal([]byte(text[payloadAt:]), &shown) != nil {
		return quorum.State{}, foreign("its record has a damaged payload")
	}
	return quorum.State{Owner: text[4 : 4+ownerLen], State: driver.State{
		Held: true, Holder: shown.Holder, Metadata: shown.Metadata, Fence: token,
		Age: max(0, time.Duration(now-since)*time.Microsecond), TTL: left,
	}}, nil
}

// foreign is the error for data that another program has put in the place of a lock.
func foreign(cause string) error {
	return fmt.Errorf("redlock: %w: choose another Namespace, or remove the Redis key: %s", driver.ErrForeign, cause)
}

// errReply has no kind: the script has run, but the reply does not show its result.
var errReply = errors.New("redlock: Redis returned a reply in an unknown format: " +
	"use one version of this library in all processes, and no proxy that changes replies")

func replyOf(parts []any) *redisconn.Reply { return &redisconn.Reply{Parts: parts, Unknown: errReply} }

var outcomes = map[string]quorum.Outcome{
	"granted": quorum.Granted, "busy": quorum.Busy, "too low": quorum.TooLow, "cancelled": quorum.Cancelled,
}

// parseAcquire reads the reply of acquire.lua.
func parseAcquire(parts []any) (quorum.Reply, error) {
	r := replyOf(parts)
	outcome, known := outcomes[r.Text()]
	a := quorum.Reply{Outcome: outcome, Last: r.Number(), Clock: r.Number()}
	if !known || a.Last > driver.MaxFence || a.Clock < 1 {
		return quorum.Reply{}, errReply
	}
	if outcome == quorum.Busy {
		text, ttl := r.Text(), r.Integer()
		if r.Err == nil {
			a.State, r.Err = stateOf(text, time.Duration(ttl)*time.Millisecond, a.Clock)
		}
	}
	if err := r.End(); err != nil {
		return quorum.Reply{}, err
	}
	return a, nil
}

// parseInspect reads the reply of inspect.lua.
func parseInspect(parts []any) (quorum.State, error) {
	if len(parts) == 0 {
		return quorum.State{}, nil
	}
	r := replyOf(parts)
	text, ttl, now := r.Text(), r.Integer(), r.Number()
	if err := r.End(); err != nil {
		return quorum.State{}, err
	}
	return stateOf(text, time.Duration(ttl)*time.Millisecond, now)
}

// parseRaise reads the reply of raise.lua.
func parseRaise(parts []any) (driver.RaiseReply, error) {
	r := replyOf(parts)
	switch r.Text() {
	case "held":
		token := r.Number()
		if err := r.End(); err != nil || token < 1 || token > driver.MaxFence {
			return driver.RaiseReply{}, errReply
		}
		return driver.RaiseReply{Held: true, Fence: token}, nil
	case "not held":
		return driver.RaiseReply{}, r.End()
	}
	return driver.RaiseReply{}, errReply
}
