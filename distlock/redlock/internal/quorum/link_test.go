package quorum_test

import (
	"context"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
)

// link is a node as one process sees it.
type link struct{ server *server }

func (l link) Name() string { return l.server.name }

func (l link) Up() time.Duration {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	return time.Since(l.server.since)
}

// call makes a call as the faults of the server want. A caller that leaves lets it go on.
func call[R any](ctx context.Context, s *server, r request, f func(*quorum.Memory) (R, error)) (R, error) {
	var none R
	s.mu.Lock()
	var fault fault
	if s.fault != nil {
		fault = s.fault(r)
	}
	s.log = append(s.log, r)
	hung, cut, err := s.hung, s.cut, s.down
	if s.foreign[r.name] {
		err = driver.ErrForeign
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return none, err
	case fault.before != nil:
		return none, fault.before
	case ctx.Err() != nil:
		return none, fmt.Errorf("%w: %w", driver.ErrNotDone, ctx.Err())
	}
	type answer struct {
		reply R
		err   error
	}
	answers := make(chan answer, 1)
	perform := func() {
		for _, until := range []<-chan struct{}{hung, fault.hold} {
			if until != nil {
				<-until
			}
		}
		s.mu.Lock()
		locks := s.locks
		s.mu.Unlock()
		reply, err := f(locks)
		if err == nil && fault.after != nil {
			err = fault.after
		}
		if fault.answer != nil {
			<-fault.answer
		}
		answers <- answer{reply, err}
	}
	if hung == nil && fault.hold == nil && fault.answer == nil {
		perform()
	} else {
		go perform()
	}
	select {
	case a := <-answers:
		return a.reply, a.err
	default:
	}
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-cut:
		return none, errLost
	}
}

func (l link) Acquire(ctx context.Context, p quorum.Proposal) (quorum.Reply, error) {
	r := request{op: "acquire", name: p.Name, owner: p.Owner, fence: p.Token}
	return call(ctx, l.server, r, func(m *quorum.Memory) (quorum.Reply, error) {
		if l.server.ahead > driver.FenceKeep { // the tokens are too old for its clock
			clock := time.Now().Add(l.server.ahead).UnixMicro()
			return quorum.Reply{Outcome: quorum.TooLow, Clock: clock}, nil
		}
		reply, err := m.Acquire(context.Background(), p)
		if err == nil && reply.Clock > 0 {
			reply.Clock += l.server.ahead.Microseconds()
		}
		return reply, err
	})
}

func (l link) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	r := request{op: "raise", name: req.Name, owner: req.Owner, fence: req.Floor}
	return call(ctx, l.server, r, func(m *quorum.Memory) (driver.RaiseReply, error) {
		return m.Raise(context.Background(), req)
	})
}

func (l link) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	r := request{op: "extend", name: reqs[0].Name, owner: reqs[0].Owner, exact: reqs[0].Exact}
	replies, err := call(ctx, l.server, r, func(m *quorum.Memory) ([]driver.ExtendReply, error) {
		return m.Extend(context.Background(), reqs), nil
	})
	if err != nil {
		replies = make([]driver.ExtendReply, len(reqs))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

func (l link) Release(ctx context.Context, req driver.ReleaseRequest, quiet bool) (bool, error) {
	r := request{op: "release", name: req.Name, owner: req.Owner, tombstone: req.Tombstone, quiet: quiet}
	return call(ctx, l.server, r, func(m *quorum.Memory) (bool, error) {
		released, err := m.Release(context.Background(), req, quiet)
		if released && !quiet {
			l.server.released(req.Name)
		}
		return released, err
	})
}

func (l link) Inspect(ctx context.Context, name driver.Name) (quorum.State, error) {
	return call(ctx, l.server, request{op: "inspect", name: name}, func(m *quorum.Memory) (quorum.State, error) {
		return m.Inspect(context.Background(), name)
	})
}

func (l link) Listen(ctx context.Context, name driver.Name) (<-chan driver.Wake, func(), error) {
	s, wakes := l.server, make(chan driver.Wake, 1)
	_, err := call(ctx, s, request{op: "listen", name: name}, func(*quorum.Memory) (struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiters[wakes] = name
		return struct{}{}, nil
	})
	return wakes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, wakes)
	}, err
}

func (l link) Close() error { return nil }
