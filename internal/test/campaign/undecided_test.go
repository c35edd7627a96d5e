package campaign

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/history"
)

// written is a campaign whose workers have written the histories of an epoch.
func written(t *testing.T, ops ...history.Op) *campaign {
	c := book(t)
	c.histories = newHistories(c)
	rec, err := history.Create(filepath.Join(c.histories.dir, "0,1-0-0"), "1/0/0")
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		rec.Begin(op).End(func(o *history.Op) { o.Return = op.Return })
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

// leased is a lease that was released.
func leased(fence, from, until int64) []history.Op {
	return []history.Op{
		{Kind: history.Acquire, Outcome: history.OK, Key: "key", Fence: fence, Call: from, Return: from + 1},
		{Kind: history.Release, Outcome: history.OK, Key: "key", Fence: fence, Call: until, Return: until + 1},
	}
}

// An undecided history is checked again, and then counts as a violation or as right.
func TestHistories_undecidedAreTriedAgain(t *testing.T) {
	for _, test := range []struct {
		name string
		ops  []history.Op
		want string
	}{
		{"one after the other", append(leased(1, 10, 20), leased(2, 30, 40)...), "0, apart 0"},
		{"two at once", append(leased(1, 10, 40), leased(2, 20, 30)...), "1 (1 history), apart 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := written(t, test.ops...)
			c.histories.checkUntil(1, time.Nanosecond)
			if h := c.histories; h.checked != 1 || h.doubtful != 1 || len(c.findings) != 0 {
				t.Fatalf("%d checked, %d of them not decided within a nanosecond, want 1 of 1: %v", h.checked, h.doubtful, c.findings)
			}
			c.histories.tryAgain(time.Minute)
			if got := c.judged(); got != test.want || c.histories.undecided != 0 {
				t.Errorf("%s, and %d are undecided, want %s", got, c.histories.undecided, test.want)
			}
			if err := c.histories.doubt(); err != nil {
				t.Error(err)
			}
		})
	}
}
