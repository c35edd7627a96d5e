package pglock

import (
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/internal/postgres"
)

var _ postgres.Locks = (*service)(nil)

// Source implements postgres.Locks.
func (s *service) Source() *pgxpool.Pool { return s.source }

// Notify implements postgres.Locks.
func (s *service) Notify(channel, message string) {
	s.wakes.handoff(handoff{zeronull.Text(channel), zeronull.Text(message)})
}

// Companion implements postgres.Locks.
func (s *service) Companion(caller string, size int, part postgres.Part) (*postgres.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pool := s.companions[part.Name]; pool != nil {
		return pool, nil
	}
	schema := postgres.Schema{Name: s.schema.Name, Parts: []postgres.Part{part}}
	pool, err := postgres.Open(caller, s.config.Copy(), size, schema)
	if err == nil {
		s.companions[part.Name] = pool
	}
	return pool, err
}
