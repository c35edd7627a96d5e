// Package runtime holds the sessions of Beluga's Runner.
package runtime

import (
	"context"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

type Session struct {
	ID        string
	AgentID   string
	TenantID  string
	State     map[string]any
	Turns     []schema.Turn
	CreatedAt time.Time
	UpdatedAt time.Time
	ExpiresAt time.Time
}

type SessionService interface {
	Create(ctx context.Context, agentID string) (*Session, error)
	Get(ctx context.Context, sessionID string) (*Session, error)
	Update(ctx context.Context, session *Session) error
	Delete(ctx context.Context, sessionID string) error
}
