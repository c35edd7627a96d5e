package redislock

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// payload is what the holder shows to others. Lua passes it on as it is.
type payload struct {
	Holder   string            `json:"h,omitempty"`
	Metadata map[string]string `json:"m,omitempty"`
}

func encodePayload(holder string, metadata map[string]string) string {
	text, err := json.Marshal(payload{holder, metadata})
	if err != nil { // cannot be: strings alone
		return "{}"
	}
	return string(text)
}

// encoded is a payload that was encoded before.
type encoded struct{ holder, text string }

func (s *service) payload(holder string, metadata map[string]string) string {
	if len(metadata) > 0 {
		return encodePayload(holder, metadata)
	}
	if last := s.payloads.Load(); last != nil && last.holder == holder {
		return last.text
	}
	text := encodePayload(holder, nil)
	s.payloads.Store(&encoded{holder, text})
	return text
}

// grant is what the head of a lock's value says: b1:<owner>:<s>:<µs>:<ahead>:<payload>.
type grant struct {
	since int64 // µs since the epoch
	ahead int64 // µs that the token is ahead of since
}

func (g grant) fence() int64 { return g.since + g.ahead }

// end is the last token of the grant's block.
func (g grant) end() int64 { return g.since + max(g.ahead, driver.FenceBlock) }

// parseGrant returns the payload as it is.
func parseGrant(text string) (g grant, payload string, err error) {
	if !strings.HasPrefix(text, "b1:") {
		return g, "", foreign(errors.New("its value was not written by this library"))
	}
	_, rest, _ := strings.Cut(text[3:], ":")
	seconds, rest, _ := strings.Cut(rest, ":")
	micros, rest, _ := strings.Cut(rest, ":")
	ahead, payload, complete := strings.Cut(rest, ":")
	since, err := parseTime(seconds, micros)
	if err != nil || !complete {
		return g, "", errReply
	}
	g.since = since
	g.ahead, err = strconv.ParseInt(ahead, 10, 64)
	if err != nil || g.ahead < 0 || g.ahead > driver.MaxFence || g.fence() < 1 || g.end() > driver.MaxFence {
		return g, "", errReply
	}
	return g, payload, nil
}

// parseTime reads the reply of TIME, as µs since the epoch.
func parseTime(seconds, micros string) (int64, error) {
	s, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || s < 0 || s > driver.MaxFence/1e6 {
		return 0, errReply
	}
	us, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || us < 0 || us >= 1e6 {
		return 0, errReply
	}
	return s*1e6 + us, nil
}

func parseAcquire(reply []any) (driver.AcquireReply, error) {
	if len(reply) == 0 {
		return driver.AcquireReply{}, errReply
	}
	switch code, _ := reply[0].(int64); {
	case code == 2:
		return driver.AcquireReply{Outcome: driver.Cancelled}, nil
	case code == 1 && (len(reply) == 2 || len(reply) == 3):
		g, _, err := parseGrant(asText(reply[1]))
		if err != nil {
			return driver.AcquireReply{}, err
		}
		granted := driver.AcquireReply{Outcome: driver.Granted, Fence: g.fence(), FenceEnd: g.end()}
		if len(reply) == 3 {
			granted.Waiters, err = parseCount(reply[2])
		}
		return granted, err
	case (code == 0 || code == 3) && len(reply) == 7:
		state, err := parseState(reply[1:6])
		busy := driver.AcquireReply{Outcome: driver.Busy, State: state}
		if ticket := asText(reply[6]); ticket != "" && err == nil {
			busy.Ticket, err = strconv.ParseInt(ticket, 10, 64)
			if err != nil || busy.Ticket < 1 {
				err = errReply
			}
		}
		if code == 3 {
			busy.Outcome = driver.Full
		}
		return busy, err
	}
	return driver.AcquireReply{}, errReply
}

// parseState reads {value, PTTL, server's seconds, and µs, how many stand in line}.
func parseState(reply []any) (driver.State, error) {
	if len(reply) != 5 {
		return driver.State{}, errReply
	}
	g, text, err := parseGrant(asText(reply[0]))
	if err != nil {
		return driver.State{}, err
	}
	var p payload
	now, err := parseTime(asText(reply[2]), asText(reply[3]))
	left, isNumber := reply[1].(int64)
	waiters, wrong := parseCount(reply[4])
	if wrong != nil {
		return driver.State{}, wrong
	}
	if err != nil || !isNumber || json.Unmarshal([]byte(text), &p) != nil {
		return driver.State{}, errReply
	}
	return driver.State{
		Held:     true,
		Holder:   p.Holder,
		Fence:    g.fence(),
		Age:      max(0, time.Duration(now-g.since)*time.Microsecond),
		TTL:      time.Duration(left) * time.Millisecond,
		Waiters:  waiters,
		Metadata: p.Metadata,
	}, nil
}

// parseCount reads how many stand in line.
func parseCount(reply any) (int, error) {
	n, isNumber := reply.(int64)
	if !isNumber || n < 0 {
		return 0, errReply
	}
	return int(n), nil
}

func asText(reply any) string {
	text, _ := reply.(string)
	return text
}
