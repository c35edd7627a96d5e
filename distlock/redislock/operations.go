package redislock

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// newGrant is how much longer than its TTL the record of a new grant lives, in ms.
const newGrant = int64(driver.FenceKeep/1e6) + driver.FenceBlock/1000

// Acquire sends the fast script first, unless the full one is sure to be needed.
func (s *service) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	if len(req.Owner) != ownerLen {
		return driver.AcquireReply{}, fmt.Errorf("redislock: %w: the owner must have %d digits", driver.ErrNotDone, ownerLen)
	}
	lost := false
	if req.Seq <= 1 && !req.Frees && !s.busy.of(req.Name).Load() {
		reply, final, err := s.acquireFast(ctx, req)
		if final || err != nil {
			return reply, err
		}
		lost = reply.Replayed
	}
	reply, err := s.acquireFull(ctx, req)
	reply.Replayed = reply.Replayed || lost
	return reply, redisconn.WithEarlierCopy(lost, err)
}

func (s *service) acquireFast(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, bool, error) {
	cmd, replayed := acquireScript.Run(ctx, s.redis, []string{keysOf(req.Name).lock()},
		req.TTL.Milliseconds()+newGrant, req.Owner, encodePayload(req.Holder, req.Metadata))
	answer, err := cmd.Result()
	if err != nil {
		return driver.AcquireReply{}, false, s.failed(err)
	}
	reply, final, err := parseFast(answer, req)
	reply.Replayed = replayed
	if final && reply.Outcome == driver.Busy {
		s.busy.of(req.Name).Store(true)
	}
	return reply, final, redisconn.WithEarlierCopy(replayed, err)
}

// acquireFull notes whether the name is busy, or was until this grant. Then the next Acquire and
// the Release need the queue, too.
func (s *service) acquireFull(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	args := []any{req.Owner, req.TTL.Milliseconds(), encodePayload(req.Holder, req.Metadata)}
	if req.Alive > 0 {
		args = append(args, req.Alive.Milliseconds(), req.Seq, req.Ticket, s.channel)
	}
	script := acquireFull
	if req.Frees {
		script = acquireFreeing
	}
	cmd, replayed := script.Run(ctx, s.redis, keysOf(req.Name).all(), args...)
	parts, err := cmd.Slice()
	if err != nil {
		return driver.AcquireReply{}, s.failed(err)
	}
	reply, err := parseAcquire(parts)
	reply.Replayed = replayed
	s.busy.of(req.Name).Store(reply.Outcome != driver.Granted || reply.Waiters > 0 || req.Seq > 1)
	return reply, redisconn.WithEarlierCopy(replayed, err)
}

func (s *service) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	cmd, replayed := raiseScript.Run(ctx, s.redis, []string{keysOf(req.Name).lock()}, req.Owner, req.Floor)
	parts, err := cmd.Slice()
	if err != nil {
		return driver.RaiseReply{}, s.failed(err)
	}
	r := replyOf(parts)
	switch r.Text() {
	case "held":
		fence, end := r.Block(r.Number(), r.Number())
		if r.Err == nil {
			return driver.RaiseReply{Held: true, Fence: fence, FenceEnd: end}, nil
		}
	case "not held":
		return driver.RaiseReply{}, nil
	}
	return driver.RaiseReply{}, redisconn.WithEarlierCopy(replayed, errReply)
}

func (s *service) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	keys, args := make([][]string, len(reqs)), make([][]any, len(reqs))
	for i, req := range reqs {
		exact := "0"
		if req.Exact {
			exact = "1"
		}
		keys[i], args[i] = []string{keysOf(req.Name).lock()}, []any{req.Owner, req.TTL.Milliseconds(), exact}
	}
	replies := make([]driver.ExtendReply, len(reqs))
	for i, reply := range extendScript.Each(ctx, s.redis, keys, args) {
		switch answer, err := reply.Text(); {
		case reply.Err() != nil:
			replies[i].Err = s.failed(err)
		case answer == "held":
			replies[i].Held = true
		case answer != "not held":
			replies[i].Err = errReply
		}
	}
	return replies
}

func (s *service) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	script, args := releaseScript, []any{req.Owner}
	switch {
	case req.Tombstone > 0 || req.Leave: // it needs all keys
		script, args = releaseFull, append(args, req.Tombstone.Milliseconds(), 1)
	case s.busy.of(req.Name).Load(): // the queue is needed
		script = releaseMoving
	}
	released, replayed, err := s.release(ctx, script, keysOf(req.Name), args...)
	return driver.ReleaseReply{Released: released, Replayed: replayed}, err
}

func (s *service) release(ctx context.Context, script *redisconn.Script, k keys, args ...any) (released, replayed bool, err error) {
	cmd, replayed := script.Run(ctx, s.redis, k.all(), args...)
	if err := cmd.Err(); err != nil {
		return false, false, s.failed(err)
	}
	switch answer, _ := cmd.Text(); answer {
	case "released":
		return true, replayed, nil
	case "pass":
		// ⚑ An error here is that of the release: the Locker then sends the release again, and the
		// waiters do not wait for the TTL.
		cmd, again := releaseMoving.Run(ctx, s.redis, k.all(), args...)
		if err := cmd.Err(); err != nil {
			return false, false, s.failed(redisconn.WithEarlierCopy(true, err))
		}
		return true, replayed || again, nil
	case "not held":
		return false, replayed, nil
	}
	return false, false, redisconn.WithEarlierCopy(replayed, errReply)
}

// busyNames remembers names by their hashes. A name that shares its place with another one costs at worst
// another round trip, or the full script without need.
type busyNames [4096]atomic.Bool

var namesSeed = maphash.MakeSeed()

func (b *busyNames) of(name driver.Name) *atomic.Bool {
	return &b[maphash.Comparable(namesSeed, name)%uint64(len(b))]
}
