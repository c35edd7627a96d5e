package faultwork

import (
	"context"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/adk/v2/agent"
	adk "google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/adksession"
	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/campaign/instance"
)

// broken is a service whose appends take effect, whatever came since the session was read.
type broken struct {
	*adksession.Service
	how string
}

// history is a session without a place.
type history struct {
	session.Session
	events []*session.Event
}

func (h *history) Events() session.Events        { return h }
func (h *history) All() iter.Seq[*session.Event] { return slices.Values(h.events) }
func (h *history) Len() int                      { return len(h.events) }
func (h *history) At(i int) *session.Event       { return h.events[i] }

func (b broken) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	found, err := b.Service.Get(ctx, req)
	if err != nil {
		return nil, err
	}
	events := slices.Collect(found.Session.Events().All())
	return &session.GetResponse{Session: &history{found.Session, events}}, nil
}

func (b broken) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	made, err := b.Service.Create(ctx, req)
	if err != nil {
		return nil, err
	}
	return &session.CreateResponse{Session: &history{Session: made.Session}}, nil
}

func (b broken) AppendEvent(_ context.Context, to session.Session, e *session.Event) error {
	h, times := to.(*history), 1
	h.events = append(h.events, e)
	said, _ := textOf(e.Content)
	switch answer := strings.HasPrefix(said, "answer"); {
	case b.how == instance.NoState:
		maps.DeleteFunc(e.Actions.StateDelta, func(key string, _ any) bool {
			return strings.HasPrefix(key, session.KeyPrefixUser)
		})
	case b.how == instance.NoAnswer && answer && rand.IntN(10) == 0:
		times = 0
	case b.how == instance.TwoAnswers && answer && rand.IntN(10) == 0:
		times = 2
	}
	for range times {
		if err := b.Append(context.Background(), h.AppName(), h.UserID(), h.ID(), e); err != nil {
			return err
		}
	}
	return nil
}

// locked holds a lock of its own during runs, which do not know of it.
func locked(locker *distlock.Locker, run running) running {
	return func(ctx context.Context, user, name string, question *genai.Content, cfg agent.RunConfig,
		opts ...adk.RunOption) iter.Seq2[*session.Event, error] {
		return func(yield func(*session.Event, error) bool) {
			began := false
			err := locker.Do(ctx, "run/"+name, func(context.Context) error {
				began = true
				run(ctx, user, name, question, cfg, opts...)(yield)
				return nil
			})
			if !began {
				yield(nil, err)
			}
		}
	}
}
