package runnerfaults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/internal/test/conversation"
)

// verdict has the counts of a campaign.
type verdict struct {
	turns        int
	acknowledged int
	errors       map[core.ErrorCode]int // turns whose client has seen no answer, by the last error
	stored       map[core.ErrorCode]int // those of them that are stored
	faults       map[conversation.Kind]int
	text         string
}

func (v *verdict) String() string { return v.text }

// judge reads all sessions and compares them with what the clients know.
func (c *campaign) judge(t *testing.T, took time.Duration) *verdict {
	reader, err := open(c.config, writer{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.close()
	v := &verdict{acknowledged: len(c.seen), errors: map[core.ErrorCode]int{}, stored: map[core.ErrorCode]int{},
		faults: map[conversation.Kind]int{}}
	for n := range c.sessions {
		id := fmt.Sprint("session-", n)
		session, err := reader.sessions.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		v.turns += len(session.Turns)
		c.compare(session, v)
	}
	for _, code := range c.failed {
		v.errors[core.ErrorCode(code)]++
	}
	runs := processes * c.sessions * c.runs
	v.text = fmt.Sprintf("%d processes, %d sessions, %d runs in %s: %d kills and %d pauses; %d answers seen, "+
		"%d turns stored; %d messages repeated; errors seen: %s; stored after an error: %s; faults: %s",
		processes, c.sessions, runs, took.Round(10*time.Millisecond),
		c.kills, c.pauses, v.acknowledged, v.turns, c.repeats, summary(v.errors), summary(v.stored), summary(v.faults))
	return v
}

// compare judges one session.
func (c *campaign) compare(session *runtime.Session, v *verdict) {
	if count, counted := session.State["turns"]; counted && count != len(session.Turns) {
		c.wrong("%s: the State counts %v turns, and %d are stored", session.ID, count, len(session.Turns))
	}
	messages, answers, err := messagesOf(session)
	if err != nil {
		c.wrong("%s: %v", session.ID, err)
	}
	for _, finding := range conversation.Judge(messages, c.attempts[session.ID]) {
		v.faults[finding.Kind]++
		c.wrong("%s: %s", session.ID, finding)
	}
	for turn, answer := range answers {
		if seen, ok := c.seen[turn]; ok && seen != answer {
			c.wrong("%s: the client of turn %d sees %q, and %q is stored", session.ID, turn, seen, answer)
		} else if !ok {
			v.stored[core.ErrorCode(c.failed[turn])]++
		}
	}
}

// messagesOf returns the messages of a session, and the answers by turn.
func messagesOf(session *runtime.Session) (messages []conversation.Message, answers map[int]string, err error) {
	answers = map[int]string{}
	for i, turn := range session.Turns {
		q := conversation.Message{Role: conversation.Question}
		a := conversation.Message{Role: conversation.Answer}
		question, answer := textOf(turn.Input), textOf(turn.Output)
		_, e1 := fmt.Sscanf(question, "question %d of %s after %d turns", &q.Turn, &q.Writer, new(int))
		_, e2 := fmt.Sscanf(answer, "answer to question %d of %s after %d turns", &a.Turn, &a.Writer, &a.Seen)
		if e := errors.Join(e1, e2); e != nil {
			err = errors.Join(err, fmt.Errorf("turn at %d: %q, %q: %w", i, question, answer, e))
		}
		a.Seen *= 2
		messages, answers[a.Turn] = append(messages, q, a), answer
	}
	return messages, answers, err
}

func textOf(m schema.Message) string {
	if m, ok := m.(interface{ Text() string }); ok {
		return m.Text()
	}
	return ""
}

// The verdict names each change of a right session.
func TestVerdict_namesEachFault(t *testing.T) {
	for want, change := range map[string]func(turns []schema.Turn) []schema.Turn{
		"":             func(turns []schema.Turn) []schema.Turn { return turns },
		"lost":         func(turns []schema.Turn) []schema.Turn { return turns[:3] },
		"doubled":      func(turns []schema.Turn) []schema.Turn { return append(turns, turns[3]) },
		"stale":        func(turns []schema.Turn) []schema.Turn { return slices.Delete(turns, 1, 2) },
		"out of order": func(turns []schema.Turn) []schema.Turn { slices.Reverse(turns); return turns },
		"torn": func(turns []schema.Turn) []schema.Turn {
			turns[1].Output, turns[2].Output = turns[2].Output, turns[1].Output
			return turns
		},
		"sees": func(turns []schema.Turn) []schema.Turn {
			turns[3].Output = schema.NewAIMessage(textOf(turns[3].Output) + " and more")
			return turns
		},
		"unexpected": func(turns []schema.Turn) []schema.Turn { turns[3].Output = nil; return turns },
	} {
		c := &campaign{attempts: map[string][]conversation.Attempt{}, seen: map[int]string{}}
		session := &runtime.Session{ID: "s"}
		for n := range 4 {
			r := request{n, "s", "client"}
			question := fmt.Sprintf("%s after %d turns", r.text(), n)
			answer := "answer to " + question
			session.Turns = append(session.Turns,
				schema.Turn{Input: schema.NewHumanMessage(question), Output: schema.NewAIMessage(answer)})
			c.seen[n] = answer
			c.attempts["s"] = append(c.attempts["s"],
				conversation.Attempt{Turn: n, Writer: "client", Acknowledged: true, Begun: int64(2*n + 1), Ended: int64(2*n + 2)})
		}
		session.Turns = change(session.Turns)
		c.compare(session, &verdict{faults: map[conversation.Kind]int{}, stored: map[core.ErrorCode]int{}})
		if report := strings.Join(c.report, "\n"); (report == "") != (want == "") || !strings.Contains(report, want) {
			t.Errorf("%q: the report is %q", want, report)
		}
	}
}
