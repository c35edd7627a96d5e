// Package inmemory registers the memory "inmemory".
package inmemory

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"
)

func init() {
	memory.Register("inmemory", func(config.ProviderConfig) (memory.Memory, error) {
		return memory.NewRecall(NewMessageStore()), nil
	})
}

type MessageStore struct {
	mu       sync.Mutex
	messages []schema.Message
}

func NewMessageStore() *MessageStore { return &MessageStore{} }

func (s *MessageStore) Append(_ context.Context, msg schema.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, msg)
	return nil
}

func (s *MessageStore) Search(ctx context.Context, query string, k int) ([]schema.Message, error) {
	all, _ := s.All(ctx)
	var found []schema.Message
	for _, message := range all {
		hit := slices.ContainsFunc(message.GetContent(), func(part schema.ContentPart) bool {
			text, ok := part.(schema.TextPart)
			return ok && strings.Contains(strings.ToLower(text.Text), strings.ToLower(query))
		})
		if hit && len(found) < k {
			found = append(found, message)
		}
	}
	return found, nil
}

func (s *MessageStore) All(context.Context) ([]schema.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]schema.Message{}, s.messages...), nil
}

func (s *MessageStore) Clear(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = nil
	return nil
}
