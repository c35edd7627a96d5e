package conversation

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Judge returns the faults of a conversation. stored has its messages in order, and attempts has the
// knowledge of their writers. A stored turn without an attempt counts as a turn with an unknown
// outcome. The time grows with n log n.
func Judge(stored []Message, attempts []Attempt) Report {
	j := judge{stored: stored, pairs: pairsOf(stored)}
	j.lost(attempts)
	j.torn()
	j.doubled()
	j.stale()
	j.outOfOrder(attempts)
	slices.SortStableFunc(j.report, func(a, b Finding) int { return cmp.Compare(a.Turn, b.Turn) })
	return j.report
}

type judge struct {
	stored []Message
	pairs  []pair
	report Report
}

func (j *judge) add(kind Kind, turn int, places []int, format string, args ...any) {
	j.report = append(j.report, Finding{kind, turn, places, fmt.Sprintf(format, args...)})
}

// missing is the place of a message that is not there.
const missing = -1

// pair is what one Save of a turn has left, and where.
type pair struct {
	save             save
	question, answer int
}

// save is what the messages of one Save have in common.
type save struct {
	turn          int
	writer, write string
}

func (m Message) save() save { return save{m.Turn, m.Writer, m.Write} }

func (p pair) places() []int {
	return slices.DeleteFunc([]int{p.question, p.answer}, func(place int) bool { return place == missing })
}

func (p pair) complete() bool { return p.question != missing && p.answer != missing }

// String says where its messages stand.
func (p pair) String() string {
	switch {
	case p.answer == missing:
		return fmt.Sprintf("question at %d, no answer", p.question)
	case p.question == missing:
		return fmt.Sprintf("answer at %d, no question", p.answer)
	}
	return fmt.Sprintf("question at %d, answer at %d", p.question, p.answer)
}

// pairsOf finds the answer to every question. First come the answers that stand where they should.
// Only a damaged conversation has others: the first question of a Save gets its first answer.
func pairsOf(stored []Message) (pairs []pair) {
	type rest struct{ questions, answers []int }
	torn := map[save]*rest{}
	var order []save // of the first message, so that the report is always the same
	for i := 0; i < len(stored); i++ {
		m := stored[i]
		if m.Role == Question && i+1 < len(stored) && stored[i+1].Role == Answer && stored[i+1].save() == m.save() {
			pairs = append(pairs, pair{m.save(), i, i + 1})
			i++
			continue
		}
		r := torn[m.save()]
		if r == nil {
			r = &rest{}
			torn[m.save()] = r
			order = append(order, m.save())
		}
		if m.Role == Question {
			r.questions = append(r.questions, i)
		} else {
			r.answers = append(r.answers, i)
		}
	}
	for _, s := range order {
		r := torn[s]
		for i := range max(len(r.questions), len(r.answers)) {
			pairs = append(pairs, pair{s, at(r.questions, i), at(r.answers, i)})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Compare(slices.Min(a.places()), slices.Min(b.places())) })
	return pairs
}

func at(places []int, i int) int {
	if i < len(places) {
		return places[i]
	}
	return missing
}

func (j *judge) lost(attempts []Attempt) {
	stored, parts := map[int]bool{}, map[int][]int{}
	for _, p := range j.pairs {
		stored[p.save.turn] = stored[p.save.turn] || p.complete()
		parts[p.save.turn] = append(parts[p.save.turn], p.places()...)
	}
	for _, a := range attempts {
		if !a.Acknowledged || stored[a.Turn] {
			continue
		}
		stored[a.Turn] = true // named once, however often it was acknowledged
		what := "nothing of it is stored"
		if len(parts[a.Turn]) > 0 {
			what = "question and answer are not both stored"
		}
		j.add(Lost, a.Turn, parts[a.Turn], "acknowledged to %s, but %s", a.Writer, what)
	}
}

func (j *judge) torn() {
	for _, p := range j.pairs {
		if !p.complete() || p.answer != p.question+1 {
			j.add(Torn, p.save.turn, p.places(), "%s", p)
		}
	}
}

func (j *judge) doubled() {
	type copies struct {
		questions, answers int
		places             []int
		saves              map[save]bool
	}
	turns := map[int]*copies{}
	for _, p := range j.pairs {
		c := turns[p.save.turn]
		if c == nil {
			c = &copies{saves: map[save]bool{}}
			turns[p.save.turn] = c
		}
		if p.question != missing {
			c.questions++
		}
		if p.answer != missing {
			c.answers++
		}
		c.places = append(c.places, p.places()...)
		c.saves[p.save] = true
	}
	for _, turn := range slices.Sorted(maps.Keys(turns)) {
		c := turns[turn]
		if max(c.questions, c.answers) < 2 {
			continue
		}
		who := fmt.Sprintf("by %d Saves", len(c.saves))
		if len(c.saves) == 1 {
			who = "by one Save, or by some that cannot be told apart"
		}
		slices.Sort(c.places)
		j.add(Doubled, turn, c.places, "stored %d times, %s: at %s", max(c.questions, c.answers), who, list(c.places))
	}
}

// list returns numbers with commas between them.
func list(places []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(places), " ", ", "), "[]")
}

func (j *judge) stale() {
	first := map[save]bool{}
	for _, p := range j.pairs {
		repeated := p.save.write != "" && first[p.save]
		first[p.save] = true
		if !p.complete() || repeated {
			continue // without its question, the messages that an answer should have seen are not known
		}
		if seen := j.stored[p.answer].Seen; seen != p.question {
			j.add(Stale, p.save.turn, p.places(), "answer at %d had seen %d messages, but %d stand before its question", p.answer, seen, p.question)
		}
	}
}

// outOfOrder compares the stored turns of a writer with its knowledge at their beginning: a turn
// must not stand before one that had been acknowledged already.
func (j *judge) outOfOrder(attempts []Attempt) {
	type key struct {
		turn   int
		writer string
	}
	type span struct{ begun, acknowledged int64 }
	known := map[key]span{}
	for _, a := range attempts {
		k := key{a.Turn, a.Writer}
		s, ok := known[k]
		if !ok {
			s = span{math.MaxInt64, math.MaxInt64}
		}
		s.begun = min(s.begun, a.Begun)
		if a.Acknowledged {
			s.acknowledged = min(s.acknowledged, a.Ended)
		}
		known[k] = s
	}
	// Where a turn stands is where it stands first: a copy further back is doubled, not out of order.
	first := map[key]bool{}
	var standing []pair
	for _, p := range j.pairs {
		k := key{p.save.turn, p.save.writer}
		if _, ok := known[k]; ok && !first[k] {
			first[k] = true
			standing = append(standing, p)
		}
	}
	earliest := map[string]pair{} // by writer: of the turns further back, the one that was acknowledged first
	for _, p := range slices.Backward(standing) {
		k := key{p.save.turn, p.save.writer}
		before, ok := earliest[k.writer]
		acknowledged := known[key{before.save.turn, k.writer}].acknowledged
		if ok && acknowledged < known[k].begun {
			places := append(p.places(), before.places()...)
			j.add(OutOfOrder, k.turn, places, "%s; %s began it after turn %d was acknowledged, which stands further back: %s",
				p, k.writer, before.save.turn, before)
		}
		if !ok || known[k].acknowledged < acknowledged {
			earliest[k.writer] = p
		}
	}
}
