package belugarunner

import (
	"context"
	"fmt"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

// BenchmarkSessionService compares a Get of 1,000 turns with a Load of the same messages, and shows an
// Update of one more turn.
func BenchmarkSessionService(b *testing.B) {
	url := sharedURL(b)
	s := newService(b, url)
	m, err := belugamemory.New(config.ProviderConfig{BaseURL: url})
	must(b, err)
	defer m.Close(context.Background())
	ctx := inSession(b, "id")
	_, err = s.Create(ctx, "agent")
	must(b, err)
	text := fmt.Sprintf("%0200d", 0)
	history := make([]schema.Turn, 1000)
	for i := range history {
		history[i] = turn(i)
		history[i].Input, history[i].Output = schema.NewHumanMessage(text), schema.NewAIMessage(text)
	}
	must(b, m.Turn(ctx, func(ctx context.Context) error {
		for _, turn := range history {
			if err := m.Save(ctx, turn.Input, turn.Output); err != nil {
				return err
			}
		}
		return nil
	}))
	s.under(b, ctx, "id", func(ctx context.Context) {
		session, err := s.Get(ctx, "id")
		must(b, err)
		for _, turn := range history {
			session.Turns = append(session.Turns, turn)
			must(b, s.Update(ctx, session))
		}
	})
	b.Run("Load", func(b *testing.B) {
		for b.Loop() {
			messages, err := m.Load(ctx, "")
			if err != nil || len(messages) != 2000 {
				b.Fatal(len(messages), err)
			}
		}
	})
	b.Run("Get", func(b *testing.B) {
		for b.Loop() {
			session, err := s.Get(ctx, "id")
			if err != nil || len(session.Turns) != 1000 {
				b.Fatal(err)
			}
		}
	})
	b.Run("Update", func(b *testing.B) {
		s.under(b, ctx, "id", func(ctx context.Context) {
			session, err := s.Get(ctx, "id")
			must(b, err)
			for b.Loop() {
				session.Turns = append(session.Turns[:1000:1000], turn(1))
				must(b, s.Update(ctx, session))
			}
		})
	})
}
