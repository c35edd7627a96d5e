package redislock

import (
	"context"
	"strings"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Ask implements driver.Asker.
func (d *lockDriver) Ask(ctx context.Context, req driver.AskRequest) (driver.AskReply, error) {
	cmd, _ := askScript.Run(ctx, d.transport, []string{keysOf(req.Name).lock()}, req.Fence, req.Work, req.Floor)
	parts, err := cmd.Slice()
	if err != nil {
		return driver.AskReply{}, d.explain(err)
	}
	r := replyOf(parts)
	reply := driver.AskReply{Asked: r.Text() == "asked", Fence: r.Number()}
	rec, ttl, now := readRecord(r)
	if r.End() == nil {
		reply.Own = rec.token
		reply.State, r.Err = rec.state(ttl, now, 0)
	}
	return reply, r.End()
}

// NotifyAsks implements driver.Asker. Without the right to subscribe it fails.
func (d *lockDriver) NotifyAsks(ctx context.Context, namespace string, asked func(owner string)) (func(), error) {
	_, leave, err := d.wakes.Listen(ctx, namespace+":asks", namespace)
	if err != nil {
		return nil, err
	}
	d.asks.Store(&asked, asked)
	return func() { d.asks.Delete(&asked); leave() }, nil
}

// parseMessage reads a message for the wakes. It notifies the listeners of an ask itself: a wake that is not
// read yet would be replaced. An ask is the owner alone.
func (d *lockDriver) parseMessage(message string) (owner string, wake driver.Wake, err error) {
	if strings.Contains(message, " ") {
		return parseWake(message)
	}
	d.asks.Range(func(_, asked any) bool { asked.(func(string))(message); return true })
	return "", wake, errReply // no wake
}
