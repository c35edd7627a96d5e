//go:build beluga

package belugamemory

import (
	"testing"

	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/lookatitude/beluga-ai/v2/memory"
)

// A composite memory keeps its other tiers, and its recall outlives the process.
func TestMessageStore_inComposite_keepsItsTiers(t *testing.T) {
	a, b := instances(t, migrated.EmptyRedis(t))
	composite := func(m *Memory) memory.Memory {
		core := memory.NewCore(memory.CoreConfig{})
		must(t, core.SetPersona("I am terse."))
		locked, err := Wrap(memory.NewComposite(memory.WithCore(core), memory.WithRecall(memory.NewRecall(m.MessageStore()))),
			m.Locker(), SessionKey, nil)
		must(t, err)
		return locked
	}
	ctx := inSession(t, "s")
	save(t, ctx, composite(a), "one")
	save(t, ctx, composite(b), "two")
	messages, err := composite(a).Load(ctx, "")
	must(t, err)
	if len(messages) != 5 || (Codec{}).Text(messages[4]) != "a two" {
		t.Errorf("the composite memory has %d messages, and the last is %v", len(messages), messages[len(messages)-1])
	}
}
