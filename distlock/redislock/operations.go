package redislock

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Acquire implements driver.Driver.
func (d *lockDriver) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	if len(req.Owner) != ownerLen {
		return driver.AcquireReply{}, fmt.Errorf("redislock: %w: the owner must have %d digits", driver.ErrNotDone, ownerLen)
	}
	args := []any{req.Owner, req.TTL.Milliseconds(), encodePayload(req.Holder, req.Metadata)}
	if req.Alive > 0 {
		args = append(args, req.Alive.Milliseconds(), req.Seq, req.Ticket, d.channel)
	}
	script := acquireScript
	if req.Frees {
		script = acquireFreeing
	}
	cmd, replayed := script.Run(ctx, d.transport, keysOf(req.Name).all(), args...)
	answer, err := cmd.Result()
	if err != nil {
		return driver.AcquireReply{}, d.explain(err)
	}
	reply, err := parseAcquire(answer)
	reply.Replayed = replayed
	if err != nil && replayed {
		err = fmt.Errorf("%w: %w", err, driver.ErrReplayed)
	}
	return reply, err
}

func (d *lockDriver) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	cmd, _ := raiseScript.Run(ctx, d.transport, []string{keysOf(req.Name).lock()}, req.Owner, req.Floor)
	parts, err := cmd.Slice()
	if err != nil {
		return driver.RaiseReply{}, d.explain(err)
	}
	r := replyOf(parts)
	switch r.Text() {
	case "held":
		fence, end := r.Number(), r.Number()
		if r.Err == nil && isBlock(fence, end) {
			return driver.RaiseReply{Held: true, Fence: fence, FenceEnd: end}, nil
		}
	case "not held":
		return driver.RaiseReply{}, nil
	}
	return driver.RaiseReply{}, errReply
}

func (d *lockDriver) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	keys, args := make([][]string, len(reqs)), make([][]any, len(reqs))
	for i, req := range reqs {
		keys[i], args[i] = []string{keysOf(req.Name).lock()}, []any{req.Owner, req.TTL.Milliseconds()}
	}
	replies := make([]driver.ExtendReply, len(reqs))
	for i, reply := range extendScript.Each(ctx, d.transport, keys, args) {
		switch answer, err := reply.Text(); {
		case reply.Err() != nil:
			replies[i].Err = d.explain(err)
		case answer == "held", answer == "asked":
			replies[i].Held, replies[i].Asked = true, answer == "asked"
		case answer != "not held":
			replies[i].Err = errReply
		}
	}
	return replies
}

func (d *lockDriver) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	if req.Tombstone > 0 || req.Leave { // it needs all keys
		return d.release(ctx, releaseScript, req.Name, req.Owner, req.Tombstone.Milliseconds(), 1)
	}
	return d.release(ctx, releaseMoving, req.Name, req.Owner)
}

// release runs a script of release.lua.
func (d *lockDriver) release(
	ctx context.Context, script *redisconn.Script, name driver.Name, args ...any,
) (driver.ReleaseReply, error) {
	cmd, replayed := script.Run(ctx, d.transport, keysOf(name).all(), args...)
	if err := cmd.Err(); err != nil {
		return driver.ReleaseReply{}, d.explain(err)
	}
	switch answer, _ := cmd.Text(); answer {
	case "released", "not held":
		return driver.ReleaseReply{Released: answer == "released", Replayed: replayed}, nil
	}
	return driver.ReleaseReply{}, errReply
}

// Listen implements driver.Listener. A driver has one channel in each namespace.
func (d *lockDriver) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	return d.wakes.Listen(ctx, name.Namespace+":wake:"+d.channel, owner)
}
