package faultwork

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
)

// plain is a SessionService as an application could write it: each session is one value in Redis.
type plain struct {
	runtime.SessionService // its Delete, which nothing calls
	client                 redis.UniversalClient
}

// newPlain uses the server of a URL of locks.
func newPlain(url string) (*plain, error) {
	client, err := redislock.ParseURL(url)
	return &plain{client: client}, err
}

func (p *plain) Create(ctx context.Context, agentID string) (*runtime.Session, error) {
	now := time.Now().UTC()
	session := &runtime.Session{ID: core.GetSessionID(ctx), AgentID: agentID, State: map[string]any{}, CreatedAt: now}
	return session, p.Update(ctx, session)
}

func (p *plain) Get(ctx context.Context, id string) (*runtime.Session, error) {
	text, err := p.client.Get(ctx, "plain:"+id).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, core.NewError("plain.get", core.ErrNotFound, "there is no such session", nil)
	}
	session := &runtime.Session{ID: id, State: map[string]any{}}
	var turns [][2]string
	if err == nil {
		err = json.Unmarshal(text, &turns)
	}
	for _, turn := range turns {
		session.Turns = append(session.Turns,
			schema.Turn{Input: schema.NewHumanMessage(turn[0]), Output: schema.NewAIMessage(turn[1])})
	}
	return session, err
}

func (p *plain) Update(ctx context.Context, session *runtime.Session) error {
	turns := [][2]string{}
	for _, turn := range session.Turns {
		turns = append(turns, [2]string{turn.Input.(*schema.HumanMessage).Text(), turn.Output.(*schema.AIMessage).Text()})
	}
	text, err := json.Marshal(turns)
	if err != nil {
		return err
	}
	return p.client.Set(ctx, "plain:"+session.ID, text, 0).Err()
}
