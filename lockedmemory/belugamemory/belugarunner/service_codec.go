package belugarunner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/packed"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// An Update is stored as one message of JSON lines: a head, and three lines for each new turn, its facts,
// input and output. A missing input or output is an empty line. The newest head counts.

// formatVersion is the version that Update writes.
const formatVersion = 1

// nextVersion begins a head or a message of the next version of this package.
var nextVersion = fmt.Appendf(nil, `{"v":%d`, formatVersion+1)

// lines stores the texts of Updates. Nothing keeps or changes a text that was read.
type lines struct{}

func (lines) Encode(text []byte) ([]byte, error) { return text, nil }
func (lines) Decode(text []byte) ([]byte, error) { return text, nil }
func (lines) Text([]byte) string                 { return "" }
func (lines) Document([]byte) struct{}           { return struct{}{} }

// headMirror has the fields of a session without its ID and its turns. Times are text of packed.Time.
type headMirror struct {
	Version   int    `json:"v"`
	AgentID   string `json:"agent_id"`
	TenantID  string `json:"tenant_id"`
	State     any    `json:"state"` // as packed.Value returns it
	CreatedAt string `json:"created_at"`
	UpdatedAt string `json:"updated_at"`
	ExpiresAt string `json:"expires_at"`
}

type turnMirror struct {
	At       string `json:"at"`
	Metadata any    `json:"metadata,omitempty"` // as packed.Value returns it
}

// encodeSession returns the head, and the text and the digest of each turn.
func encodeSession(session *runtime.Session) (head []byte, turns [][]byte, digests []uint64, err error) {
	for i, turn := range session.Turns {
		text, err := encodeTurn(turn)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%w: nothing was written: turn %d: %w", sessionstore.ErrCodec, i, err)
		}
		turns, digests = append(turns, text), append(digests, maphash.Bytes(seed, text))
	}
	if head, err = encodeHead(session); err != nil {
		return nil, nil, nil, fmt.Errorf("%w: nothing was written: the session: %w", sessionstore.ErrCodec, err)
	}
	return head, turns, digests, nil
}

func encodeHead(session *runtime.Session) (head []byte, err error) {
	stored := headMirror{Version: formatVersion, AgentID: session.AgentID, TenantID: session.TenantID}
	if packed.Deep(session.State, packed.MaxDepth) {
		return nil, fmt.Errorf("its State nests more than %d levels deep, or contains itself", packed.MaxDepth)
	}
	if stored.State, err = packed.Value(session.State); err != nil {
		return nil, fmt.Errorf("its State %w", err)
	}
	var errs [3]error
	stored.CreatedAt, errs[0] = packed.Time(session.CreatedAt)
	stored.UpdatedAt, errs[1] = packed.Time(session.UpdatedAt)
	stored.ExpiresAt, errs[2] = packed.Time(session.ExpiresAt)
	if err = errors.Join(errs[:]...); err == nil && !utf8.ValidString(session.AgentID+session.TenantID) {
		err = errors.New("its AgentID or TenantID is not valid UTF-8")
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(stored)
}

var seed = maphash.MakeSeed()

// encodeTurn returns the three lines of a turn.
func encodeTurn(turn schema.Turn) ([]byte, error) {
	at, err := packed.Time(turn.Timestamp)
	facts := turnMirror{At: at}
	if err == nil && turn.Metadata != nil {
		if packed.Deep(turn.Metadata, packed.MaxDepth) {
			return nil, fmt.Errorf("its metadata nests more than %d levels deep, or contains itself", packed.MaxDepth)
		}
		if facts.Metadata, err = packed.Value(turn.Metadata); err != nil {
			return nil, fmt.Errorf("metadata %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	var text [3][]byte
	text[0], err = json.Marshal(facts)
	for i, message := range []schema.Message{turn.Input, turn.Output} {
		if err == nil && message != nil {
			text[1+i], err = belugamemory.Codec{}.Encode(message)
		}
	}
	return bytes.Join(text[:], []byte("\n")), err
}

// joined returns the text of an Update.
func joined(head []byte, turns [][]byte) []byte {
	return bytes.Join(append([][]byte{head}, turns...), []byte("\n"))
}

// decodeSession returns the session of stored Updates, the newest first, and the digests of its turns.
// encodeSession returns the same digests until the turns change. Beyond a budget of tokens it reads no
// Update but the newest. oldest is that of the last Update read.
func decodeSession(id string, stored iter.Seq2[lockedmemory.Exchange[[]byte], error], budget int) (
	session *runtime.Session, digests []uint64, oldest lockedmemory.Place, err error) {
	var turns [][]schema.Turn
	var ofTurns [][]uint64
	for exchange, err := range stored {
		if err != nil {
			return nil, nil, oldest, err
		}
		update, d, err := decodeUpdate(exchange.Input())
		for _, turn := range update {
			told, _ := exchangeOf(turn) // as the model gets it; a damaged turn counts nothing
			budget -= tokensOf(told)
		}
		if session != nil && budget < 0 && err == nil {
			break
		}
		if session == nil && err == nil {
			session = &runtime.Session{ID: id}
			head, _, _ := bytes.Cut(exchange.Input(), []byte("\n"))
			err = decodeHead(session, head)
		}
		if err != nil {
			return nil, nil, oldest, fmt.Errorf("%w: the update at %s: %w", sessionstore.ErrCodec, exchange.Place, err)
		}
		turns, ofTurns, oldest = append(turns, update), append(ofTurns, d), exchange.Place
	}
	slices.Reverse(turns)
	slices.Reverse(ofTurns)
	if session != nil {
		session.Turns = slices.Concat(turns...)
	}
	return session, slices.Concat(ofTurns...), oldest, nil
}

// decodeUpdate returns the turns of a stored Update, and their digests.
func decodeUpdate(stored []byte) (turns []schema.Turn, digests []uint64, err error) {
	_, rest, more := bytes.Cut(stored, []byte("\n"))
	newer := bytes.Contains(stored, nextVersion)
	for more {
		var text, facts, input, output []byte
		text, rest, more = cutTurn(rest)
		facts, input, _ = bytes.Cut(text, []byte("\n"))
		input, output, _ = bytes.Cut(input, []byte("\n"))
		turn, err := decodeTurn(facts, input, output)
		if err == nil && newer { // ⚑ as Update encodes the turn: unknown fields and parts stay stored
			text, err = encodeTurn(turn)
		}
		if err != nil {
			return nil, nil, err
		}
		turns, digests = append(turns, turn), append(digests, maphash.Bytes(seed, text))
	}
	return turns, digests, nil
}

// cutTurn returns the first three lines.
func cutTurn(text []byte) (turn, rest []byte, more bool) {
	end := 0
	for range 3 {
		line := bytes.IndexByte(text[end:], '\n')
		if line < 0 {
			return text, nil, false
		}
		end += line + 1
	}
	return text[:end-1], text[end:], true
}

func decodeHead(session *runtime.Session, text []byte) error {
	var head headMirror
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("its head is no JSON (%T)", err)
	}
	if head.Version < 1 || head.Version > formatVersion+1 {
		return fmt.Errorf("its version is %d, and this package reads versions 1 to %d: update this instance",
			head.Version, formatVersion+1)
	}
	var isMap bool
	if session.State, isMap = packed.Unpack(head.State).(map[string]any); !isMap || !packed.Is(head.State, session.State) {
		return errors.New("the State of its head is no map, or has a tag that Update does not write")
	}
	session.AgentID, session.TenantID = head.AgentID, head.TenantID
	var errs [3]error
	session.CreatedAt, errs[0] = packed.ParseTime(head.CreatedAt)
	session.UpdatedAt, errs[1] = packed.ParseTime(head.UpdatedAt)
	session.ExpiresAt, errs[2] = packed.ParseTime(head.ExpiresAt)
	if errors.Join(errs[:]...) != nil {
		return errors.New("a time of its head cannot be read")
	}
	return nil
}

func decodeTurn(facts, input, output []byte) (turn schema.Turn, err error) {
	var stored turnMirror
	if err := json.Unmarshal(facts, &stored); err != nil {
		return turn, fmt.Errorf("a turn is no JSON (%T)", err)
	}
	if turn.Timestamp, err = packed.ParseTime(stored.At); err != nil {
		return turn, errors.New("the time of a turn cannot be read")
	}
	if stored.Metadata != nil {
		metadata, isMap := packed.Unpack(stored.Metadata).(map[string]any)
		if !isMap || !packed.Is(stored.Metadata, metadata) {
			return turn, errors.New("the metadata of a turn is no map, or has a tag that Update does not write")
		}
		turn.Metadata = metadata
	}
	if len(input) > 0 {
		turn.Input, err = belugamemory.Codec{}.Decode(input)
	}
	if len(output) > 0 && err == nil {
		turn.Output, err = belugamemory.Codec{}.Decode(output)
	}
	return turn, err
}
