package campaign

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/history"
)

// An undecided history is checked again, and then counts as a violation or as right.
func TestHistories_undecidedAreTriedAgain(t *testing.T) {
	saved := history.Op{Kind: history.Save, Outcome: history.OK, Fence: 1, Entry: "A", Call: 10, Return: 11}
	loaded := history.Op{Kind: history.Load, Outcome: history.OK, Fence: 1, Seen: []string{"A"}, Call: 20, Return: 21}
	missed := loaded
	missed.Seen = nil
	for want, ops := range map[string][]history.Op{
		"0, apart 0":             {saved, loaded},
		"1 (1 history), apart 0": {saved, missed},
	} {
		c := book(t)
		c.histories = newHistories(c)
		rec, err := history.Create(filepath.Join(c.histories.dir, "0,run-1"), "run-1")
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			op.Key = draftOf(0)
			rec.Begin(op).End(func(o *history.Op) { o.Return = op.Return })
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		c.histories.checkUntil(1, time.Nanosecond)
		if h := c.histories; h.checked != 1 || h.doubtful != 1 || len(c.findings) != 0 {
			t.Fatalf("%d checked, %d of them not decided within a nanosecond, want 1 of 1: %v", h.checked, h.doubtful, c.findings)
		}
		c.histories.tryAgain(time.Minute)
		if got := c.judged(); got != want || c.histories.undecided != 0 {
			t.Errorf("%s, and %d are undecided, want %s", got, c.histories.undecided, want)
		}
		if err := c.histories.doubt(); err != nil {
			t.Error(err)
		}
	}
}
