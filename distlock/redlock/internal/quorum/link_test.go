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
func call(ctx context.Context, s *server, r request, f func(*quorum.Memory) (quorum.Reply, error)) (quorum.Reply, error) {
	var none quorum.Reply
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
		reply quorum.Reply
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
		if fault.slow != nil {
			answers <- answer{none, fault.slow}
			return
		}
		reply, err := f(locks)
		if reply.Clock > 0 {
			reply.Clock += s.ahead.Microseconds()
		}
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
			return quorum.Reply{Outcome: quorum.TooLow, Clock: time.Now().UnixMicro()}, nil
		}
		return m.Acquire(context.Background(), p)
	})
}

func (l link) Raise(ctx context.Context, req driver.RaiseRequest) (quorum.Reply, error) {
	r := request{op: "raise", name: req.Name, owner: req.Owner, fence: req.Floor}
	return call(ctx, l.server, r, func(m *quorum.Memory) (quorum.Reply, error) {
		return m.Raise(context.Background(), req)
	})
}

func (l link) Extend(ctx context.Context, req driver.ExtendRequest) (quorum.Reply, error) {
	r := request{op: "extend", name: req.Name, owner: req.Owner}
	return call(ctx, l.server, r, func(m *quorum.Memory) (quorum.Reply, error) {
		return m.Extend(context.Background(), req)
	})
}

func (l link) Release(ctx context.Context, req driver.ReleaseRequest, quiet bool) (quorum.Reply, error) {
	r := request{op: "release", name: req.Name, owner: req.Owner, tombstone: req.Tombstone, quiet: quiet}
	return call(ctx, l.server, r, func(m *quorum.Memory) (quorum.Reply, error) {
		reply, err := m.Release(context.Background(), req, quiet)
		if reply.Outcome == quorum.Released && !quiet {
			l.server.released(req.Name)
		}
		return reply, err
	})
}

func (l link) Inspect(ctx context.Context, name driver.Name) (quorum.Reply, error) {
	return call(ctx, l.server, request{op: "inspect", name: name}, func(m *quorum.Memory) (quorum.Reply, error) {
		return m.Inspect(context.Background(), name)
	})
}

func (l link) Listen(ctx context.Context, name driver.Name) (<-chan driver.Wake, func(), error) {
	s, wakes := l.server, make(chan driver.Wake, 1)
	_, err := call(ctx, s, request{op: "listen", name: name}, func(*quorum.Memory) (quorum.Reply, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiters[wakes] = name
		return quorum.Reply{}, nil
	})
	return wakes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, wakes)
	}, err
}

func (l link) Close() error { return nil }
