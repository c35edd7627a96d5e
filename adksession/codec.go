package adksession

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/adk/v2/session"
)

// encode returns the event without keys of temp:, its JSON, and its deltas. The event stays as it is.
func encode(e *session.Event) (kept *session.Event, text []byte, state []delta, err error) {
	kept = new(*e)
	kept.Actions.StateDelta = maps.Clone(e.Actions.StateDelta)
	maps.DeleteFunc(kept.Actions.StateDelta, func(key string, _ any) bool { return strings.HasPrefix(key, session.KeyPrefixTemp) })
	if state, err = encodeState(kept.Actions.StateDelta); err != nil {
		return nil, nil, nil, err
	}
	if text, err = json.Marshal(kept); err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrCodec, err)
	}
	return kept, text, state, nil
}

// encodeState returns the deltas of a state without keys of temp:.
func encodeState(values map[string]any) ([]delta, error) {
	var state []delta
	for key, value := range values {
		if strings.HasPrefix(key, session.KeyPrefixTemp) {
			continue
		}
		if !storable(key) {
			return nil, fmt.Errorf("%w: the key of a state is not UTF-8, or has U+0000", ErrCodec)
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCodec, err)
		}
		d := delta{ofSession, key, string(text)}
		if cut, ok := strings.CutPrefix(key, session.KeyPrefixApp); ok {
			d.scope, d.key = ofApp, cut
		} else if cut, ok := strings.CutPrefix(key, session.KeyPrefixUser); ok {
			d.scope, d.key = ofUser, cut
		}
		state = append(state, d)
	}
	// ⚑ Two appends write the rows that they share in one order. Otherwise they wait for each other.
	slices.SortFunc(state, func(a, b delta) int { return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.key, b.key)) })
	return state, nil
}

func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// seal makes the record of an event, in JSON, under a token.
func seal(token int64, event []byte) string {
	return fmt.Sprintf(`{"v":1,"t":%d,"e":%s}`, token, event)
}

func decode(records []string) ([]*session.Event, error) {
	events := make([]*session.Event, 0, len(records))
	for _, text := range records {
		var sealed struct {
			V int
			E *session.Event
		}
		if err := json.Unmarshal([]byte(text), &sealed); err != nil || sealed.V != 1 || sealed.E == nil {
			return nil, fmt.Errorf("%w: a record of version %d: %w", ErrCodec, sealed.V, cmp.Or(err, ErrCodec))
		}
		events = append(events, sealed.E)
	}
	return events, nil
}

func decodeStates(s stored) (map[string]any, error) {
	state := make(map[string]any, len(s.appState)+len(s.userState)+len(s.state))
	for prefix, values := range map[string]map[string]string{session.KeyPrefixApp: s.appState, session.KeyPrefixUser: s.userState, "": s.state} {
		for key, text := range values {
			var value any
			if err := json.Unmarshal([]byte(text), &value); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrCodec, err)
			}
			state[prefix+key] = value
		}
	}
	return state, nil
}
