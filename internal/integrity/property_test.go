package integrity

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func init() {
	_ = flag.Set("rapid.checks", "300")
	_ = flag.Set("rapid.nofailfile", "true") // seeds are printed, and files would be left in the source
}

// random draws numbers as a rand.Rand does.
type random struct{ *rapid.T }

func (r random) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(r.T, "n") }

// conversation is one that is right, and what those who wrote it know. Its turns stand one behind the other.
type conversation struct {
	stored   []Message
	attempts []Attempt
}

// right makes a conversation as several writers leave it who take turns: some do not learn what has become of theirs, and
// some messages reach two of them.
func right(t *rapid.T) (c conversation) {
	r := random{t}
	writers, named, several := 1+r.IntN(4), r.IntN(2) == 0, r.IntN(2) == 0
	ended, now := make([]int64, writers), int64(0) // when each writer ended its last attempt, and when the last message was stored
	numbers := rapid.SliceOfNDistinct(rapid.IntRange(0, 19), 1, 20, rapid.ID).Draw(t, "numbers")
	for save, number := range numbers {
		w := r.IntN(writers)
		attempt := func(acknowledged bool) {
			begun := ended[w] + 1 + int64(r.IntN(int(now+10-ended[w]))) // it has waited since then
			if several {
				begun = 1 + int64(r.IntN(int(now+10))) // a writer may do several things at once
			}
			now += 10
			ended[w] = now + int64(r.IntN(8))
			c.attempts = append(c.attempts, Attempt{number, fmt.Sprint("writer-", w), acknowledged, begun, ended[w]})
		}
		store := func() {
			by := fmt.Sprint("writer-", w)
			if named {
				by += fmt.Sprint("/save-", save)
			}
			c.stored = append(c.stored, turn(number, by, len(c.stored))...)
		}
		switch r.IntN(8) {
		case 0: // the writer died, or was told of an error, before it stored anything
			attempt(false)
		case 1: // or afterwards
			attempt(false)
			store()
		case 2: // then somebody else tries it again, and finds it
			attempt(false)
			store()
			w = r.IntN(writers)
			attempt(true)
		case 3: // or does not
			attempt(false)
			w = r.IntN(writers)
			attempt(true)
			store()
		default:
			attempt(true)
			store()
		}
	}
	return c
}

// pairAt returns where the question of a random turn stands.
func (c *conversation) pairAt(r random) int { return 2 * r.IntN(len(c.stored)/2) }

func (c *conversation) acknowledged(turn int) bool {
	return slices.ContainsFunc(c.attempts, func(a Attempt) bool { return a.Turn == turn && a.Acknowledged })
}

// damages are ways to make a right conversation a wrong one. Each says of which turn what has to be found, and from which
// place on the conversation has changed; nothing is to be found if it could do nothing.
var damages = map[string]func(r random, c *conversation) (turn int, kinds []Kind, from int){
	"a turn is lost": func(r random, c *conversation) (int, []Kind, int) {
		at := c.pairAt(r)
		turn := c.stored[at].Turn
		c.stored = slices.Delete(c.stored, at, at+2)
		if !c.acknowledged(turn) {
			return turn, nil, at
		}
		return turn, []Kind{Lost}, at
	},
	"a question or an answer is lost": func(r random, c *conversation) (int, []Kind, int) {
		at := r.IntN(len(c.stored))
		turn := c.stored[at].Turn
		c.stored = slices.Delete(c.stored, at, at+1)
		if !c.acknowledged(turn) {
			return turn, []Kind{Torn}, at / 2 * 2
		}
		return turn, []Kind{Torn, Lost}, at / 2 * 2
	},
	"an answer stands further back": func(r random, c *conversation) (int, []Kind, int) {
		at := c.pairAt(r) + 1
		late := c.stored[at]
		c.stored = slices.Delete(c.stored, at, at+1)
		if to := at + r.IntN(len(c.stored)-at+1); to > at {
			c.stored = slices.Insert(c.stored, to, late)
			return late.Turn, []Kind{Torn}, at - 1
		}
		c.stored = slices.Insert(c.stored, at, late)
		return late.Turn, nil, at
	},
	"question and answer change places": func(r random, c *conversation) (int, []Kind, int) {
		at := c.pairAt(r)
		c.stored[at], c.stored[at+1] = c.stored[at+1], c.stored[at]
		return c.stored[at].Turn, []Kind{Torn}, at
	},
	"a turn is written into another": func(r random, c *conversation) (int, []Kind, int) {
		at := c.pairAt(r)
		c.stored = slices.Insert(c.stored, at+1, turn(1000, "somebody", at)...)
		return c.stored[at].Turn, []Kind{Torn}, at
	},
	"a turn is stored again": func(r random, c *conversation) (int, []Kind, int) {
		at, to := c.pairAt(r), c.pairAt(r)
		again := slices.Clone(c.stored[at : at+2])
		c.stored = slices.Insert(c.stored, to, again...)
		return again[0].Turn, []Kind{Doubled}, to
	},
	"a turn is answered again": func(r random, c *conversation) (int, []Kind, int) {
		number := c.stored[c.pairAt(r)].Turn
		end := len(c.stored)
		c.stored = append(c.stored, turn(number, "somebody", end)...)
		return number, []Kind{Doubled}, end
	},
	"an answer is repeated": func(r random, c *conversation) (int, []Kind, int) {
		at, to := c.pairAt(r)+1, c.pairAt(r)
		again := c.stored[at]
		c.stored = slices.Insert(c.stored, to, again)
		return again.Turn, []Kind{Doubled, Torn}, to
	},
	"a turn stands before one that it followed": func(r random, c *conversation) (int, []Kind, int) {
		to := c.pairAt(r)
		before := c.stored[to]
		for from := to + 2; from < len(c.stored); from += 2 {
			later := c.stored[from]
			if later.Writer != before.Writer || !c.follows(later, before) {
				continue
			}
			moved := slices.Clone(c.stored[from : from+2])
			c.stored = slices.Insert(slices.Delete(c.stored, from, from+2), to, moved...)
			return later.Turn, []Kind{OutOfOrder}, to
		}
		return 0, nil, to
	},
	"a writer has seen too little or too much": func(r random, c *conversation) (int, []Kind, int) {
		at := c.pairAt(r) + 1
		seen := r.IntN(len(c.stored) + 3)
		if seen == c.stored[at].Seen {
			return 0, nil, at
		}
		c.stored[at].Seen = seen
		return c.stored[at].Turn, []Kind{Stale}, at - 1
	},
}

// follows tells whether a writer began a turn after another one was acknowledged to it.
func (c *conversation) follows(later, before Message) bool {
	known := func(m Message, acknowledged bool) (a []Attempt) {
		for _, attempt := range c.attempts {
			if attempt.Turn == m.Turn && attempt.Writer == m.Writer && (attempt.Acknowledged || !acknowledged) {
				a = append(a, attempt)
			}
		}
		return a
	}
	for _, b := range known(before, true) {
		if !slices.ContainsFunc(known(later, false), func(l Attempt) bool { return l.Begun <= b.Ended }) {
			return true
		}
	}
	return false
}

func TestJudge_neverBlamesARightConversation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.Custom(right).Draw(t, "conversation")
		if report := Judge(c.stored, c.attempts); len(report) > 0 {
			t.Errorf("a right conversation is blamed:\n%s", report)
		}
	})
}

func TestJudge_namesEveryDamage(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			c := rapid.Custom(right).Filter(func(c conversation) bool { return len(c.stored) > 0 }).Draw(t, "conversation")
			whole := slices.Clone(c.stored)
			number, kinds, from := damage(random{t}, &c)
			report := Judge(c.stored, c.attempts)
			for _, kind := range kinds {
				if !slices.Contains(report.Turns(kind), number) {
					t.Fatalf("turn %d is not named as %s in\n%s\n%+v", number, kind, report, c)
				}
			}
			for _, m := range whole[:from] {
				if m.Turn != number && slices.Contains(report.Turns(), m.Turn) {
					t.Fatalf("turn %d stands before the damage, at %d, but is named in\n%s\n%+v", m.Turn, from, report, c)
				}
			}
			if len(kinds) == 0 {
				t.SkipNow() // rapid makes another, and fails if few conversations can be damaged
			}
		}))
	}
}

func TestJudge_namesTheSameWhateverTheOrderOfTheAttempts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.Custom(right).Draw(t, "conversation")
		for _, name := range slices.Sorted(maps.Keys(damages)) {
			if len(c.stored) > 1 && len(c.stored)%2 == 0 {
				damages[name](random{t}, &c)
			}
		}
		want := Judge(c.stored, c.attempts).Turns()
		attempts := rapid.Permutation(c.attempts).Draw(t, "attempts")
		if got := Judge(c.stored, attempts).Turns(); !slices.Equal(got, want) {
			t.Errorf("%v are named, and %v in another order", want, got)
		}
	})
}
