package redlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
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

// reply reads the parts of a script's reply in order. It keeps its error.
type reply struct {
	parts []any
	err   error
}

func next[T any](r *reply) (value T) {
	if len(r.parts) > 0 {
		if part, ok := r.parts[0].(T); ok {
			r.parts = r.parts[1:]
			return part
		}
	}
	r.err = errReply
	return value
}

// end returns the error of the reply. Parts that were not read are an error.
func (r *reply) end() error {
	if r.err == nil && len(r.parts) > 0 {
		return errReply
	}
	return r.err
}

// block checks the tokens of a grant.
func (r *reply) block(fence, end int64) (int64, int64) {
	if fence < 1 || fence > end || end > driver.MaxFence {
		r.err = errReply
	}
	return fence, end
}

var outcomes = map[string]driver.Outcome{
	"granted": driver.Granted, "busy": driver.Busy, "too low": driver.TooLow, "cancelled": driver.Cancelled,
}

// parseAcquire reads the reply of acquire.lua.
func parseAcquire(parts []any) (driver.AcquireReply, error) {
	r := &reply{parts: parts}
	outcome, known := outcomes[next[string](r)]
	a := driver.AcquireReply{Outcome: outcome, Last: next[int64](r), Clock: next[int64](r)}
	switch {
	case !known || a.Last < 0 || a.Last > driver.MaxFence || a.Clock < 1:
		return driver.AcquireReply{}, errReply
	case outcome == driver.Granted:
		a.Fence, a.FenceEnd = r.block(next[int64](r), a.Last)
	case outcome == driver.Busy:
		text, ttl := next[string](r), next[int64](r)
		if r.err == nil {
			a.State, r.err = stateOf(text, time.Duration(ttl)*time.Millisecond, a.Clock)
		}
	}
	if err := r.end(); err != nil {
		return driver.AcquireReply{}, err
	}
	return a, nil
}

// parseInspect reads the reply of inspect.lua.
func parseInspect(parts []any) (driver.State, error) {
	if len(parts) == 0 {
		return driver.State{}, nil
	}
	r := &reply{parts: parts}
	text, ttl, now := next[string](r), next[int64](r), next[int64](r)
	if err := r.end(); err != nil {
		return driver.State{}, err
	}
	return stateOf(text, time.Duration(ttl)*time.Millisecond, now)
}

// parseRaise reads the reply of raise.lua.
func parseRaise(parts []any) (driver.RaiseReply, error) {
	r := &reply{parts: parts}
	switch next[string](r) {
	case "held":
		fence, end := r.block(next[int64](r), next[int64](r))
		if err := r.end(); err != nil {
			return driver.RaiseReply{}, err
		}
		return driver.RaiseReply{Held: true, Fence: fence, FenceEnd: end}, nil
	case "not held":
		return driver.RaiseReply{}, r.end()
	}
	return driver.RaiseReply{}, errReply
}
