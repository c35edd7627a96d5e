package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Listen implements driver.Listener. A driver has one channel in each namespace.
func (s *service) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	return s.notices.Listen(ctx, name.Namespace+":wake:"+s.channel, owner)
}

// parseWake reads a message of lua/slow.lua:
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
