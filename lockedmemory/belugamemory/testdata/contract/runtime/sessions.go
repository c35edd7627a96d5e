package runtime

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
)

// InMemorySessionService hands out copies.
type InMemorySessionService struct {
	mu       sync.Mutex
	sessions map[string]Session
}

type SessionOption func(*InMemorySessionService)

func NewInMemorySessionService(...SessionOption) *InMemorySessionService {
	return &InMemorySessionService{sessions: map[string]Session{}}
}

// Create chooses the ID.
func (s *InMemorySessionService) Create(ctx context.Context, agentID string) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UTC()
	session := Session{ID: rand.Text(), AgentID: agentID, State: map[string]any{}, CreatedAt: now, UpdatedAt: now}
	s.sessions[session.ID] = clone(session)
	return &session, nil
}

func (s *InMemorySessionService) Get(ctx context.Context, sessionID string) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	session, ok := s.sessions[sessionID]
	if !ok {
		return nil, notFound("get")
	}
	session = clone(session)
	return &session, nil
}

func (s *InMemorySessionService) Update(ctx context.Context, session *Session) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if session == nil {
		return core.Errorf(core.ErrInvalidInput, "no session to update")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.sessions[session.ID]; !ok {
		return notFound("update")
	}
	updated := clone(*session)
	updated.UpdatedAt = time.Now().UTC()
	s.sessions[session.ID] = updated
	return nil
}

func (s *InMemorySessionService) Delete(ctx context.Context, sessionID string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.sessions[sessionID]; !ok {
		return notFound("delete")
	}
	delete(s.sessions, sessionID)
	return nil
}

// clone copies what a turn changes; the values in the maps are shared.
func clone(session Session) Session {
	session.State = maps.Clone(session.State)
	session.Turns = slices.Clone(session.Turns)
	for i, turn := range session.Turns {
		session.Turns[i].Metadata = maps.Clone(turn.Metadata)
	}
	return session
}

func notFound(op string) error {
	return core.NewError("runtime.session."+op, core.ErrNotFound, "no such session", nil)
}
