package belugarunner

import (
	"maps"
	"slices"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/agent"
)

// WithStream returns Options with Stream.
func WithStream() *Options { return &Options{Stream: true} }

// feed takes the events of a run to its reader. It never makes the run wait. Unread, it has at most the events that
// the worker keeps, too.
type feed struct {
	more chan struct{} // of 1: there are events

	mu     sync.Mutex
	events []agent.Event
	closed bool
}

func newFeed() *feed { return &feed{more: make(chan struct{}, 1)} }

// add gives an event to the reader. ⚑ A copy: plugins may change the original.
func (f *feed) add(event agent.Event) {
	event.Metadata = maps.Clone(event.Metadata)
	if event.ToolCall != nil {
		call := *event.ToolCall
		event.ToolCall = &call
	}
	if event.ToolResult != nil {
		result := *event.ToolResult
		result.Content = slices.Clone(result.Content)
		event.ToolResult = &result
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.events = append(f.events, event)
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// take returns the events that were added since the last call.
func (f *feed) take() []agent.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

// close takes no more events.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// leave drops what the reader has not read.
func (f *feed) leave() { f.close(); f.take() }
