package adksession

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
)

// leased is what a lease knows of its session: the last op at each of its steps. Steps of the lease alone
// use it.
type leased struct{ ops []string }

func (l *leased) last() string { return l.ops[len(l.ops)-1] }

// handle is a session.Session. Its IDs, its state and its events are those of a session in memory.
type handle struct {
	session.Session
	memory session.Service
	id
	service *Service

	mu      sync.Mutex
	op      string // the last one that the handle has seen or made
	failed  error  // of the first append that failed
	updated time.Time
}

// newHandle makes a handle of a session that was read.
func (s *Service) newHandle(of id, r reply) *handle {
	h := &handle{memory: session.InMemoryService(), id: of, service: s, op: r.op, updated: r.updated}
	ctx := context.Background()
	req := &session.CreateRequest{AppName: of.app, UserID: of.user, SessionID: of.name}
	created, _ := h.memory.Create(ctx, req) // none of these can fail
	h.Session = created.Session
	for _, e := range r.events {
		_ = h.memory.AppendEvent(ctx, h.Session, e)
	}
	for key, value := range r.values { // it has more than the deltas of the events
		_ = h.State().Set(key, value)
	}
	return h
}

func (h *handle) LastUpdateTime() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.updated
}

// fail keeps the first error, and returns it. ⚑ ADK's RunLive goes on after a failed append, and would
// store a response without its call.
func (h *handle) fail(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = cmp.Or(h.failed, err)
	return h.failed
}

// enter returns the op before an append in a step of a lease. A handle may have missed appends of the lease
// alone.
func (h *handle) enter(l *leased) (last string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.failed != nil || len(l.ops) == 0:
		return h.op, h.failed
	case !slices.Contains(l.ops, h.op):
		return "", ErrStale
	}
	return l.last(), nil
}

// moved moves the handle after an append.
func (h *handle) moved(ctx context.Context, op string, e *session.Event, updated time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.op, h.updated = op, updated
	_ = h.memory.AppendEvent(ctx, h.Session, e) // cannot fail
}

func codecError(err error) error { return fmt.Errorf("%w: %w", ErrCodec, err) }

// maxStateKey is the longest key of a state. ⚑ An index of PostgreSQL takes 2,704 bytes.
const maxStateKey = 1024

// encode returns the JSON of an event without keys of temp:, and its state. The event stays as it is.
func (s *Service) encode(e *session.Event) (text []byte, values state, err error) {
	kept := *e
	kept.Actions.StateDelta = maps.Clone(e.Actions.StateDelta)
	maps.DeleteFunc(kept.Actions.StateDelta, func(key string, _ any) bool { return strings.HasPrefix(key, session.KeyPrefixTemp) })
	values = make(state)
	for key, value := range kept.Actions.StateDelta {
		one, err := json.Marshal(value)
		if err != nil || !storable(key) || len(key) > maxStateKey {
			return nil, nil, codecError(cmp.Or(err, errors.New("the key of a state is not UTF-8, has U+0000, or is longer than 1,024 bytes")))
		}
		values[key] = string(one)
	}
	switch text, err = json.Marshal(&kept); {
	case err != nil:
		return nil, nil, codecError(err)
	case len(text) > s.opts.MaxEvent:
		return nil, nil, ErrTooLarge
	}
	return text, values, nil
}

func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// record is what the store keeps of an append, in JSON. The token shows which run has made the event.
func (q request) record() string { return fmt.Sprintf(`{"v":1,"t":%d,"e":%s}`, q.token, q.event) }

// decode reads the records and the state of a reply. recent is how many records were asked for.
func (r *reply) decode(recent int64) error {
	if int64(len(r.records)) < min(recent, r.n) { // ⚑ an eviction must not shorten the history
		return fmt.Errorf("%w: events of the session are missing", distlock.ErrRefused)
	}
	for _, text := range r.records {
		var record struct {
			V int
			E *session.Event
		}
		if err := json.Unmarshal([]byte(text), &record); err != nil || record.V != 1 || record.E == nil {
			return codecError(cmp.Or(err, fmt.Errorf("a record of version %d", record.V)))
		}
		r.events = append(r.events, record.E)
	}
	r.values = make(map[string]any)
	for key, text := range r.state {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return codecError(err)
		}
		r.values[key] = value
	}
	return nil
}

// answered reports whether an event answers a confirmation whose tool has run: an earlier answer is followed
// by a response to the wrapped call. ⚑ ADK runs the tool again for each answer. ⚑ The response before the
// answer says that the call needs the confirmation.
func answered(history []*session.Event, e *session.Event) bool {
	wrapped := make(map[string]string) // the call of a confirmation
	given := make(map[string][]string) // the confirmations of a call that have an answer
	ran := make(map[string]bool)       // confirmations whose tool has run
	for _, old := range append(history, e) {
		for _, p := range parts(old) {
			switch call, response := p.FunctionCall, p.FunctionResponse; {
			case call != nil && call.Name == toolconfirmation.FunctionCallName:
				if original, err := toolconfirmation.OriginalCallFrom(call); err == nil {
					wrapped[call.ID] = original.ID
				}
			case response == nil || response.ID == "":
			case old.Author == "user" && response.Name == toolconfirmation.FunctionCallName:
				if old == e && ran[response.ID] {
					return true
				}
				given[wrapped[response.ID]] = append(given[wrapped[response.ID]], response.ID)
			default:
				for _, confirmation := range given[response.ID] {
					ran[confirmation] = true
				}
			}
		}
	}
	return false
}

func parts(e *session.Event) []*genai.Part {
	if e.Content == nil {
		return nil
	}
	return e.Content.Parts
}
