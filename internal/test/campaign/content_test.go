package campaign

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/belugalock/belugalock/internal/test/conversation"
)

// codec writes the facts about a message as a line of JSON, and its body behind that, unchanged.
type codec struct{}

func (codec) Encode(m message) ([]byte, error) {
	body := m.Body
	m.Body = nil
	head, err := json.Marshal(m)
	return append(append(head, '\n'), body...), err
}

func (codec) Decode(text []byte) (m message, err error) {
	head, body, ok := bytes.Cut(text, []byte("\n"))
	if !ok {
		return m, errors.New("a message without a body")
	}
	if err = json.Unmarshal(head, &m); err == nil && len(body) > 0 {
		m.Body = body
	}
	return m, err
}

func (codec) Text(m message) string      { return m.Write }
func (codec) Document(m message) message { return m }

// hostileBodies are what a protocol, a script or the store itself might take for something else.
var hostileBodies = [][]byte{
	{0}, []byte("a\x00b"), []byte("\r\n"), []byte("*1\r\n$8\r\nFLUSHALL\r\n"), []byte("$-1\r\n"), []byte("-ERR no\r\n"),
	[]byte("\xff\xfe\xfd"), []byte("\xed\xa0\x80"), []byte("mark"), []byte("clear"), []byte("op"), []byte("*"),
	[]byte("' .. redis.call('FLUSHALL') .. '"),
	[]byte("%s%n"), everyByte,
}

var everyByte = func() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}()

// bodyOf returns the part of a message that the judges do not need. It depends on the turn alone,
// so that they can compute it. It is empty, or hostile, or rarely, and only in an answer because
// each Load reads it, 256 KiB of hostile bytes.
func bodyOf(turn int, role conversation.Role) []byte {
	n := uint64(turn) * 0x9e3779b97f4a7c15 >> 32 // numbers of turns have a pattern
	switch {
	case n%400 == 0 && role == conversation.Answer:
		return bytes.Repeat(everyByte, 1024)
	case n%4 > 0:
		return nil
	case role == conversation.Question:
		n /= 7
	}
	return hostileBodies[n/4%uint64(len(hostileBodies))]
}

// exchange is what a turn saves.
func exchange(turn int, write string, fence int64, seen int) (question, answer message) {
	question = message{Turn: turn, Role: conversation.Question, Write: write, Fence: fence, Body: bodyOf(turn, conversation.Question)}
	answer = message{Turn: turn, Role: conversation.Answer, Write: write, Fence: fence, Seen: seen, Body: bodyOf(turn, conversation.Answer)}
	return question, answer
}
