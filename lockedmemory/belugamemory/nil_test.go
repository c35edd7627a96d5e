package belugamemory

import (
	"context"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// Other memories of Beluga store a nil pointer, and a later search ends the process.
func TestMemory_nilMessage_refused(t *testing.T) {
	inner := recall()
	wrapped := ofOne(t, inner)
	var q *schema.HumanMessage
	a := schema.NewAIMessage("a")
	ctx := inSession(t, "s")
	for _, m := range []*Memory{wrapped, open(t, "mem://", nil)} {
		mustHaveCode(t, m.Save(ctx, q, a), core.ErrInvalidInput, distlock.ErrInvalidOption)
		mustHaveCode(t, m.Save(ctx, a, q), core.ErrInvalidInput, distlock.ErrInvalidOption)
		mustHaveCode(t, m.Append(ctx, q), core.ErrInvalidInput, distlock.ErrInvalidOption)
		if got, err := m.Load(ctx, "a"); len(got) != 0 || err != nil {
			t.Errorf("the memory has %v, %v", got, err)
		}
	}
	m := open(t, "mem://", nil)
	_, err := m.Answer(ctx, "id", q, func(context.Context) ([]schema.Message, error) { return []schema.Message{a}, nil })
	mustHaveCode(t, err, core.ErrInvalidInput, sessionstore.ErrCodec)
	mustHaveCode(t, m.MessageStore().Append(ctx, q), core.ErrInvalidInput, distlock.ErrInvalidOption)
}
