// Package report judges the conversations that the runs have left, and tells the result on a terminal.
// Package page tells the same in HTML.
package report

import (
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/internal/test/conversation"
)

// Locked is the part of a turn that the lock covers in a run. It is the title of the run's column.
type Locked string

// The parts.
const (
	NoLock    Locked = "no lock"
	SaveOnly  Locked = "Save only"
	WholeTurn Locked = "whole turn"
)

// Result is the outcome of a run.
type Result struct {
	Locked Locked
	Took   time.Duration
	balancer.Outcome
	Messages  int                   // of users
	Histories [][]history.Message   // of each conversation, as they are stored in the end
	Reports   []conversation.Report // the findings about each conversation
}

// Judge counts the damage of the next conversation, which has the user's messages 0 to turns-1,
// after a run that has ended well: each message must be stored, because an instance has dealt with
// it.
func (r *Result) Judge(messages []history.Message, turns int) {
	session := len(r.Histories)
	var attempts []conversation.Attempt
	for _, t := range r.Ended {
		if t.Session == session {
			attempts = append(attempts, conversation.Attempt{Turn: t.Message, Writer: t.Instance, Acknowledged: t.Error == "",
				Begun: t.Start.UnixNano(), Ended: t.End.UnixNano()})
		}
	}
	for turn := range turns {
		attempts = append(attempts, conversation.Attempt{Turn: turn, Writer: "an instance", Acknowledged: true})
	}
	stored := make([]conversation.Message, len(messages))
	for i, m := range messages {
		stored[i] = conversation.Message{Turn: m.Turn, Role: conversation.Answer, Writer: m.Instance, Seen: m.Seen}
		if m.Role == "user" {
			stored[i].Role = conversation.Question
		}
	}
	r.Messages += turns
	r.Histories = append(r.Histories, messages)
	r.Reports = append(r.Reports, conversation.Judge(stored, attempts))
}

// Count returns how many messages of users went wrong in one of these ways, or in any if none is
// given.
func (r *Result) Count(kinds ...conversation.Kind) (n int) {
	for _, report := range r.Reports {
		n += len(report.Turns(kinds...))
	}
	return n
}

// refused returns how many stale writes the store refused.
func (r *Result) refused() (n int) {
	for _, t := range r.Ended {
		if t.Refused {
			n++
		}
	}
	return n
}

// waits returns how long the turns waited for the lock, the shortest wait first.
func (r *Result) waits() (waits []time.Duration) {
	for _, s := range r.Spans {
		if s.Name == distlock.OpAcquire {
			waits = append(waits, s.End.Sub(s.Start))
		}
	}
	slices.Sort(waits)
	return waits
}
