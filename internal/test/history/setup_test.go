package history

import (
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }

// The histories of the tests are written with these, all for one session.

func save(fence, call, end int64, entry string, outcome Outcome) Op {
	return Op{Kind: Save, Process: "p", Fence: fence, Call: call, Return: end, Entry: entry, Outcome: outcome}
}

func (o Op) as(turn string) Op { o.Turn = turn; return o }

func (o Op) marked(mark int64) Op { o.Mark = mark; return o }

func load(fence, call, end int64, seen ...string) Op {
	return Op{Kind: Load, Process: "p", Fence: fence, Call: call, Return: end, Seen: seen, Outcome: OK}
}

func staleLoad(fence, call, end, mark int64) Op {
	return Op{Kind: Load, Process: "p", Fence: fence, Call: call, Return: end, Outcome: Stale, Mark: mark}
}

func cleared(fence, call, end int64, outcome Outcome) Op {
	return Op{Kind: Clear, Process: "p", Fence: fence, Call: call, Return: end, Outcome: outcome}
}

func deleted(fence, call, end int64, outcome Outcome) Op {
	return Op{Kind: Delete, Process: "p", Fence: fence, Call: call, Return: end, Outcome: outcome}
}

// replaced is a Replace of the entries of a range, "A B", by others.
func replaced(fence, call, end int64, old, with string, outcome Outcome) Op {
	return Op{Kind: Replace, Process: "p", Fence: fence, Call: call, Return: end, Outcome: outcome,
		Range: strings.Fields(old), With: strings.Fields(with)}
}

// waited is a call of a turn that was refused because of a Delete.
func (o Op) waited(began int64) Op { o.Began, o.Outcome, o.Seen = began, Deleted, nil; return o }

// last is a Load of the last entries.
func (o Op) last(most int) Op { o.Most = most; return o }

// three is a session with three entries, and then more.
func three(more ...Op) []Op {
	return append([]Op{save(4, 0, 1, "A", OK), save(4, 2, 3, "B", OK), save(4, 4, 5, "C", OK)}, more...)
}
