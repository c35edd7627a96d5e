package redlock

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
	"github.com/belugalock/belugalock/internal/redisconn"
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

var errReply = redisconn.UnknownReply("redlock")

var outcomes = map[quorum.Outcome]bool{
	quorum.Granted: true, quorum.Busy: true, quorum.TooLow: true, quorum.Cancelled: true,
	quorum.Held: true, quorum.NotHeld: true, quorum.Released: true, quorum.Free: true,
}

// parse reads the reply of a script, see lua/record.lua.
func parse(parts []any) (quorum.Reply, error) {
	r := redisconn.Reply{Parts: parts, Unknown: errReply}
	reply := quorum.Reply{Outcome: quorum.Outcome(r.Text()), Last: r.Number(), Clock: r.Number()}
	if !outcomes[reply.Outcome] || reply.Last > driver.MaxFence || reply.Clock < 1 {
		return quorum.Reply{}, errReply
	}
	if reply.Outcome == quorum.Busy {
		s, text := &reply.State, ""
		s.Held, s.Owner, s.Fence, text = true, r.Text(), r.Number(), r.Text()
		s.Age, s.TTL = time.Duration(r.Number())*time.Microsecond, time.Duration(r.Integer())*time.Millisecond
		var shown payload
		if r.Err == nil && json.Unmarshal([]byte(text), &shown) != nil {
			return quorum.Reply{}, fmt.Errorf("redlock: %w: choose another Namespace, or remove the Redis key: "+
				"its record has a damaged payload", driver.ErrForeign)
		}
		s.Holder, s.Metadata = shown.Holder, shown.Metadata
	}
	if err := r.End(); err != nil {
		return quorum.Reply{}, err
	}
	return reply, nil
}
