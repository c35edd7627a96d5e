package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Listen implements driver.Listener. A driver has one channel in each namespace.
func (s *service) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	return s.notices.Listen(ctx, name.Namespace+":wake:"+s.channel, owner)
}

// parseWake reads a message of lua/slow.lua:
// "<owner>:<seq>:<ttl, ms>:<waiters>:<token>:<last token of the block>".
func parseWake(message string) (owner string, wake driver.Wake, err error) {
	words := strings.Split(message, ":")
	if len(words) != 6 {
		return "", wake, errReply
	}
	parts := make([]any, 5)
	for i, word := range words[1:] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return "", wake, errReply
		}
		parts[i] = n
	}
	r := replyOf(parts)
	wake.Seq = r.Number()
	ttl := r.Number()
	wake.Grant = driver.AcquireReply{Outcome: driver.Granted, Waiters: int(r.Number())}
	wake.Grant.Fence, wake.Grant.FenceEnd = r.Block(r.Number(), r.Number())
	if r.Err != nil || ttl > (365*24*time.Hour).Milliseconds() {
		return "", driver.Wake{}, errReply
	}
	wake.TTL = time.Duration(ttl) * time.Millisecond
	return words[0], wake, nil
}
