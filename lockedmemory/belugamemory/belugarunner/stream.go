package belugarunner

import (
	"maps"
	"slices"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/agent"
)

// WithStream returns Options with Stream.
func WithStream() *Options { return &Options{Stream: true} }

// feed takes the events and the end of a run to its reader. It never makes the run wait. Unread, it has at most the
// events that the worker keeps, too.
type feed struct {
	more chan struct{} // of 1: there are events, or the end

	mu     sync.Mutex
	events []agent.Event
	ended  bool
	err    error
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
	f.put([]agent.Event{event}, false, nil)
}

// end gives the last events, and an error. The first end counts, and nothing comes after it.
func (f *feed) end(events []agent.Event, err error) { f.put(events, true, err) }

func (f *feed) put(events []agent.Event, ends bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.events, f.ended, f.err = append(f.events, events...), ends, err
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// take returns the events that were given since the last call, and whether these are all.
func (f *feed) take() (events []agent.Event, ended bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, f.events = f.events, nil
	return events, f.ended, f.err
}

// leave drops what the reader has not read.
func (f *feed) leave() { f.end(nil, nil); _, _, _ = f.take() }
