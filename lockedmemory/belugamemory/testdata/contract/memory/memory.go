// Package memory holds the interface of memories, their registry, and middleware.
package memory

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"
)

type Memory interface {
	Save(ctx context.Context, input, output schema.Message) error
	Load(ctx context.Context, query string) ([]schema.Message, error)
	Search(ctx context.Context, query string, k int) ([]schema.Document, error)
	Clear(ctx context.Context) error
}

type Factory func(cfg config.ProviderConfig) (Memory, error)

var (
	mu        sync.Mutex
	factories = map[string]Factory{}
)

// Register replaces an earlier memory of the same name.
func Register(name string, f Factory) {
	mu.Lock()
	defer mu.Unlock()
	factories[name] = f
}

func New(name string, cfg config.ProviderConfig) (Memory, error) {
	mu.Lock()
	factory, ok := factories[name]
	mu.Unlock()
	if !ok {
		return nil, core.Errorf(core.ErrNotFound, "no memory has the name %q, only %v have one", name, List())
	}
	return factory(cfg)
}

func List() []string {
	mu.Lock()
	defer mu.Unlock()
	return slices.Sorted(maps.Keys(factories))
}

type Middleware func(Memory) Memory

// ApplyMiddleware makes the first the outermost.
func ApplyMiddleware(mem Memory, mws ...Middleware) Memory {
	for _, mw := range slices.Backward(mws) {
		mem = mw(mem)
	}
	return mem
}
