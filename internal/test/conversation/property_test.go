package conversation

import (
	"flag"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func init() {
	_ = flag.Set("rapid.checks", "300")
	_ = flag.Set("rapid.nofailfile", "true") // seeds are printed, and files would be left in the source
}

// conversation is a right one, with the knowledge of its writers. Its turns stand one behind the other.
type conversation struct {
	stored   []Message
	attempts []Attempt
}

// right makes a conversation of several writers that take turns. Some writers do not learn the
// outcome of their turns, and some messages reach two writers.
func right(t *rapid.T) (c conversation) {
	intN := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
	writers, named, several := 1+intN(4), intN(2) == 0, intN(2) == 0
	ended := make([]int64, writers) // the end of each writer's last attempt
	now := int64(0)                 // the time of the last message
	numbers := rapid.SliceOfNDistinct(rapid.IntRange(0, 19), 1, 20, rapid.ID).Draw(t, "numbers")
	for save, number := range numbers {
		w := intN(writers)
		attempt := func(acknowledged bool) {
			begun := ended[w] + 1 + int64(intN(int(now+10-ended[w]))) // it has waited since then
			if several {
				begun = 1 + int64(intN(int(now+10))) // a writer may do several things at once
			}
			now += 10
			ended[w] = now + int64(intN(8))
			c.attempts = append(c.attempts, Attempt{number, fmt.Sprint("writer-", w), acknowledged, begun, ended[w]})
		}
		store := func() {
			by := fmt.Sprint("writer-", w)
			if named {
				by += fmt.Sprint("/save-", save)
			}
			c.stored = append(c.stored, turn(number, by, len(c.stored))...)
		}
		switch intN(8) {
		case 0: // the writer died, or was told of an error, before it stored anything
			attempt(false)
		case 1: // or afterwards
			attempt(false)
			store()
		case 2: // then another writer tries it again, and finds it
			attempt(false)
			store()
			w = intN(writers)
			attempt(true)
		case 3: // or does not
			attempt(false)
			w = intN(writers)
			attempt(true)
			store()
		default:
			attempt(true)
			store()
		}
	}
	return c
}

func TestJudge_neverBlamesARightConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.Custom(right).Draw(t, "conversation")
		if report := Judge(c.stored, c.attempts); len(report) > 0 {
			t.Errorf("a right conversation is blamed:\n%s", report)
		}
	})
}
