package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Memory is a node without a server. It answers as the scripts of package redlock do, and has no
// notices.
type Memory struct {
	mu    sync.Mutex
	name  string
	names map[driver.Name]*memoryRecord
}

type memoryRecord struct {
	Proposal   // of the last grant
	held       bool
	expires    time.Time
	since      time.Time
	released   string // the last owner that was released
	tombstones map[string]time.Time
}

// NewMemory makes a node without locks.
func NewMemory(name string) *Memory {
	return &Memory{name: name, names: make(map[driver.Name]*memoryRecord)}
}

// look returns the record of a name, without what has ended.
func (m *Memory) look(name driver.Name) (r *memoryRecord, now time.Time) {
	if r, now = m.names[name], time.Now(); r == nil {
		r = &memoryRecord{tombstones: make(map[string]time.Time)}
		m.names[name] = r
	}
	r.held = r.held && now.Before(r.expires)
	return r, now
}

// last is the highest token that is reserved.
func (r *memoryRecord) last() int64 {
	if r.Token == 0 {
		return 0
	}
	return r.Token + Block
}

func (r *memoryRecord) heldBy(owner string) bool { return r.held && r.Owner == owner }

// tooFar is the error of a token that is more than a year ahead.
func tooFar(token int64, now time.Time) error {
	if token > now.Add(driver.FloorAhead).UnixMicro() {
		return fmt.Errorf("memory: %w", driver.ErrFloor)
	}
	return nil
}

func (m *Memory) Acquire(_ context.Context, p Proposal) (Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, now := m.look(p.Name)
	if err := tooFar(p.Token, now); err != nil {
		return Reply{}, err
	}
	again := r.heldBy(p.Owner) && p.Token == r.Token
	reply := Reply{Outcome: Granted}
	switch {
	case r.released == p.Owner, now.Before(r.tombstones[p.Owner]):
		reply.Outcome = Cancelled
	case r.held && !r.heldBy(p.Owner):
		reply = Reply{Outcome: Busy, State: r.state(now)}
	case again:
		if end := now.Add(p.TTL); end.After(r.expires) {
			r.expires = end
		}
	case p.Token <= max(r.last(), now.Add(-driver.FenceKeep).UnixMicro()):
		reply.Outcome = TooLow
	default:
		r.Proposal, r.held, r.since, r.expires = p, true, now, now.Add(p.TTL)
	}
	reply.Last, reply.Clock = r.last(), now.UnixMicro()
	return reply, nil
}

func (m *Memory) Raise(_ context.Context, req driver.RaiseRequest) (Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, now := m.look(req.Name)
	if err := tooFar(req.Floor, now); err != nil {
		return Reply{}, err
	}
	if r.heldBy(req.Owner) && req.Floor > r.last() {
		r.Token = req.Floor
	}
	return r.whether(req.Owner, now), nil
}

// whether says whether the owner holds the name.
func (r *memoryRecord) whether(owner string, now time.Time) Reply {
	reply := Reply{Outcome: NotHeld, Last: r.last(), Clock: now.UnixMicro()}
	if r.heldBy(owner) {
		reply.Outcome = Held
	}
	return reply
}

func (m *Memory) Extend(_ context.Context, req driver.ExtendRequest) (Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, now := m.look(req.Name)
	if end := now.Add(req.TTL); r.heldBy(req.Owner) && end.After(r.expires) {
		r.expires = end
	}
	return r.whether(req.Owner, now), nil
}

func (m *Memory) Release(_ context.Context, req driver.ReleaseRequest, _ bool) (Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, now := m.look(req.Name)
	if req.Tombstone > 0 {
		r.tombstones[req.Owner] = now.Add(req.Tombstone)
	}
	if r.heldBy(req.Owner) {
		r.held, r.released = false, r.Owner
	}
	reply := r.whether(req.Owner, now)
	if r.released == req.Owner {
		reply.Outcome = Released
	}
	return reply, nil
}

func (m *Memory) Inspect(_ context.Context, name driver.Name) (Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, now := m.look(name)
	reply := Reply{Outcome: Free, Last: r.last(), Clock: now.UnixMicro(), State: r.state(now)}
	if r.held {
		reply.Outcome = Busy
	}
	return reply, nil
}

// state is empty if the name is free.
func (r *memoryRecord) state(now time.Time) State {
	if !r.held {
		return State{}
	}
	metadata := make(map[string]string)
	for key, value := range r.Metadata {
		metadata[key] = value
	}
	return State{Owner: r.Owner, State: driver.State{Held: true, Holder: r.Holder, Metadata: metadata, Fence: r.Token,
		Age: now.Sub(r.since), TTL: r.expires.Sub(now)}}
}

func (m *Memory) Name() string { return m.name }

func (m *Memory) Up() time.Duration { return time.Hour }

func (m *Memory) Listen(context.Context, driver.Name) (<-chan driver.Wake, func(), error) {
	return make(chan driver.Wake), func() {}, nil
}

func (m *Memory) Close() error { return nil }
