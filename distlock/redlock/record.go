package redlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Places in a record, see lua/record.lua.
const (
	ownerLen   = 32
	numbersAt  = 68
	payloadAt  = 127
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
func stateOf(text string, ttl time.Duration, now int64) (driver.State, error) {
	if len(text) < payloadAt || !strings.HasPrefix(text, recordMark) || !strings.Contains("hr", text[2:3]) || text[3] != '.' {
		return driver.State{}, foreign("its value is no record of a quorum of this library")
	}
	var numbers [4]int64 // token, last token of the block, keep in ms, since in µs
	at := numbersAt
	for i, width := range []int{16, 16, 11, 16} {
		n, err := strconv.ParseUint(text[at:at+width], 10, 63)
		if err != nil {
			return driver.State{}, foreign("its record has a damaged number")
		}
		numbers[i] = int64(n)
		at += width
	}
	token, last, since := numbers[0], numbers[1], numbers[3]
	if token < 1 || token > last || last > driver.MaxFence {
		return driver.State{}, foreign("its record has a token out of range")
	}
	left := ttl - time.Duration(numbers[2])*time.Millisecond // negative if it was restored without a TTL
	if text[2] != 'h' || ttl >= 0 && left <= 0 {
		return driver.State{}, nil
	}
	var shown payload
	if json.Unmarshal([]byte(text[payloadAt:]), &shown) != nil {
		return driver.State{}, foreign("its record has a damaged payload")
	}
	return driver.State{
		Held: true, Owner: text[4 : 4+ownerLen], Holder: shown.Holder, Metadata: shown.Metadata, Fence: token,
		Age: max(0, time.Duration(now-since)*time.Microsecond), TTL: left,
	}, nil
}

// foreign is the error for data that another program has put in the place of a lock.
func foreign(cause string) error {
	return fmt.Errorf("redlock: %w: choose another Namespace, or remove the Redis key: %s", driver.ErrForeign, cause)
}

// errReply has no kind: the script has run, but the reply does not show its result.
var errReply = errors.New("redlock: Redis returned a reply in an unknown format: " +
	"use one version of this library in all processes, and no proxy that changes replies")

func replyOf(parts []any) *redisconn.Reply { return &redisconn.Reply{Parts: parts, Unknown: errReply} }

var outcomes = map[string]driver.Outcome{
	"granted": driver.Granted, "busy": driver.Busy, "too low": driver.TooLow, "cancelled": driver.Cancelled,
}

// parseAcquire reads the reply of acquire.lua.
func parseAcquire(parts []any) (driver.AcquireReply, error) {
	r := replyOf(parts)
	outcome, known := outcomes[r.Text()]
	a := driver.AcquireReply{Outcome: outcome, Last: r.Number(), Clock: r.Number()}
	switch {
	case !known || a.Last > driver.MaxFence || a.Clock < 1:
		return driver.AcquireReply{}, errReply
	case outcome == driver.Granted:
		a.Fence, a.FenceEnd = r.Block(r.Number(), a.Last)
	case outcome == driver.Busy:
		text, ttl := r.Text(), r.Integer()
		if r.Err == nil {
			a.State, r.Err = stateOf(text, time.Duration(ttl)*time.Millisecond, a.Clock)
		}
	}
	if err := r.End(); err != nil {
		return driver.AcquireReply{}, err
	}
	return a, nil
}

// parseInspect reads the reply of inspect.lua.
func parseInspect(parts []any) (driver.State, error) {
	if len(parts) == 0 {
		return driver.State{}, nil
	}
	r := replyOf(parts)
	text, ttl, now := r.Text(), r.Integer(), r.Number()
	if err := r.End(); err != nil {
		return driver.State{}, err
	}
	return stateOf(text, time.Duration(ttl)*time.Millisecond, now)
}

// parseRaise reads the reply of raise.lua.
func parseRaise(parts []any) (driver.RaiseReply, error) {
	r := replyOf(parts)
	switch r.Text() {
	case "held":
		fence, end := r.Block(r.Number(), r.Number())
		if err := r.End(); err != nil {
			return driver.RaiseReply{}, err
		}
		return driver.RaiseReply{Held: true, Fence: fence, FenceEnd: end}, nil
	case "not held":
		return driver.RaiseReply{}, r.End()
	}
	return driver.RaiseReply{}, errReply
}
