package report

import (
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/lockedmemory"
)

// Result is the outcome of a run.
type Result struct {
	Locked    Locked
	Began     time.Time
	Took      time.Duration
	Messages  int                   // of users
	Histories [][]history.Message   // of each conversation, as they are stored in the end
	Reports   []conversation.Report // the findings about each conversation
	Spans     []spans.Span
	Tally     balancer.Tally
}

// Judge counts the damage of a conversation with the user's messages 0 to turns-1. It compares them
// with the history in the end, and with the spans of the instances. It is for a run that has ended
// well: every message was delivered until an instance reported that it had dealt with it. So each
// message must be stored, even if earlier tries failed.
func (r *Result) Judge(session int, messages []history.Message, turns int) {
	var attempts []conversation.Attempt
	for _, s := range r.Spans {
		if s.Name == spans.Turn && s.Session == session {
			attempts = append(attempts, conversation.Attempt{Turn: s.Message, Writer: s.Instance, Acknowledged: s.Error == "",
				Begun: s.Start.UnixNano(), Ended: s.End.UnixNano()})
		}
	}
	for turn := range turns { // whatever became of its span
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

// Refused returns how many stale writes the store refused.
func (r *Result) Refused() (n int) {
	for _, s := range r.Spans {
		if s.Refused {
			n++
		}
	}
	return n
}

// Finding is what went wrong with a message of a conversation.
type Finding struct {
	Session int
	conversation.Finding
}

// Findings returns the first n findings of each kind.
func (r *Result) Findings(n int) (first []Finding) {
	seen := map[conversation.Kind]int{}
	for session, report := range r.Reports {
		for _, f := range report {
			if seen[f.Kind]++; seen[f.Kind] <= n {
				first = append(first, Finding{session, f})
			}
		}
	}
	return first
}

// Waits returns how long the turns waited for the lock, the shortest wait first.
func (r *Result) Waits() (waits []time.Duration) {
	for _, s := range r.Spans {
		if s.Name == distlock.OpAcquire {
			waits = append(waits, s.End.Sub(s.Start))
		}
	}
	slices.Sort(waits)
	return waits
}

// Serial returns the least time that the turns of one conversation can take: the time of their
// models and writes, one turn after another, without waits. It is that of the conversation that
// takes longest. Only turns that stored an answer count.
func (r *Result) Serial() (longest time.Duration) {
	byID, models := map[string]spans.Span{}, map[string]time.Duration{}
	for _, s := range r.Spans {
		byID[s.ID] = s
		if s.Name == spans.Model {
			models[s.Parent] += s.End.Sub(s.Start)
		}
	}
	took := map[int]time.Duration{} // by conversation
	for _, save := range r.Spans {
		if save.Name != lockedmemory.OpSaveOnce || save.Error != "" {
			continue
		}
		session := byID[byID[save.Parent].Parent].Session
		took[session] += models[save.Parent] + save.End.Sub(save.Start)
		longest = max(longest, took[session])
	}
	return longest
}
