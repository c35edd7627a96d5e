package campaign

import (
	"fmt"
	"path/filepath"
	"slices"
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

// A process lives on for a moment after its shutdown was noted. A grant in that moment that is
// released breaks nothing. A grant to another process without a release does.
func TestHistories_grantedAfterTheShutDown(t *testing.T) {
	for process, want := range map[string]string{"1/0/0": "0, apart 0", "2/0/0": "1 (1 history), apart 0"} {
		c := written(t, slices.Concat(leased(1, 110, 120), leased(2, 130, 200), leased(3, 150, 160))...)
		c.histories.events.Note(history.Op{Kind: history.Killed, Turn: process, Call: 100})
		c.histories.checkUntil(1, time.Minute)
		if got := c.judged(); got != want {
			t.Errorf("%s was shut down: %s, want %s", process, got, want)
		}
	}
}

// What cannot be decided fails the run if it is more than a small share.
func TestHistories_manyUndecidedAreAFailure(t *testing.T) {
	c := written(t, intricate()...)
	c.histories.checkUntil(1, time.Millisecond)
	before := time.Now()
	c.histories.tryAgain(100 * time.Millisecond)
	if took := time.Since(before); took > 10*time.Second {
		t.Errorf("the second try took %s, and may take 100ms", took)
	}
	h := c.histories
	if h.checked != 1 || h.undecided != 1 || len(c.findings) != 0 {
		t.Fatalf("%d checked, %d undecided: %v; want 1 that cannot be decided", h.checked, h.undecided, c.findings)
	}
	for _, test := range []struct {
		undecided, checked int
		fails              bool
	}{{0, 0, false}, {1, 1, false}, {1, 100, false}, {2, 2, true}, {2, 39, true}, {2, 40, false}, {5, 100, false}, {6, 100, true}} {
		h.undecided, h.checked = test.undecided, test.checked
		if err := h.doubt(); (err != nil) != test.fails {
			t.Errorf("%d of %d undecided: %v, want a failure: %t", test.undecided, test.checked, err, test.fails)
		}
	}
}

// intricate is a history with more orders than can be tried: Saves that were all under way at once,
// and a Load that has seen none of them.
func intricate() (ops []history.Op) {
	const many = 60
	for n := range int64(many) {
		ops = append(ops, history.Op{
			Kind: history.Save, Outcome: history.OK, Key: talkOf(0, recordedTalk), Entry: fmt.Sprint(n), Call: 10 + n, Return: 1000 + n,
		})
	}
	return append(ops, history.Op{Kind: history.Load, Outcome: history.OK, Key: talkOf(0, recordedTalk), Call: 2000, Return: 2001})
}
