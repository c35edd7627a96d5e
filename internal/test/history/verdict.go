package history

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Violation is a promise that was broken.
type Violation struct {
	Letter string // of the promise in docs/guarantees.md; "?" if no single one explains it
	Text   string // of the promise
	Op     Op     // the first operation for which the model has no place
	Around []Op   // that one, and those that came before and after it

	promise promise
}

func (v *Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is broken: %s\n  there is no place for\n    %s\n  around it:\n", v.Letter, v.Text, v.Op)
	for _, o := range v.Around {
		fmt.Fprintf(&b, "    %s\n", o)
	}
	return b.String()
}

// ErrUndecided says that the check took too long. The history may be right or wrong.
var ErrUndecided = errors.New("the history was not decided in time")

// Check checks the history of one session: [Load], [Save], [Replace], [Clear] and [Delete]. It returns nil
// for a right one. Another error than [ErrUndecided] says why no real run has such a history.
//
// The search leaves out unknown operations without a visible effect: a Save whose entry no Load has shown,
// and whose turn ID no other Save has found known. Such a Save may have shown its token to the store, so it
// explains a refusal.
func Check(ops []Op, limit time.Duration) (*Violation, error) { return checkWithout(ops, limit, 0) }

// checkWithout leaves out some promises, for tests.
func checkWithout(ops []Op, limit time.Duration, without promise) (*Violation, error) {
	s, err := newSession(ops)
	if err != nil {
		return nil, err
	}
	switch porcupine.CheckOperationsTimeout(s.model(without), s.steps, limit) {
	case porcupine.Unknown:
		return nil, ErrUndecided
	case porcupine.Illegal:
		return s.explain(without), nil
	}
	return nil, nil
}

// forever is the return of what never returned.
const forever = math.MaxInt64

// patience is how long a question about a violation may take, which is known to be one already.
const patience = 5 * time.Second

// explain finds the promise without which the history would be right.
func (s *session) explain(without promise) *Violation {
	v := &Violation{Letter: "?", Text: "no single promise explains it"}
	for _, p := range promises {
		model := s.model(without | p.promise)
		if without&p.promise == 0 && porcupine.CheckOperationsTimeout(model, s.steps, patience) == porcupine.Ok {
			v.Letter, v.Text, v.promise = p.letter, p.text, p.promise
			break
		}
	}
	ops := slices.SortedStableFunc(slices.Values(s.steps), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	_, info := porcupine.CheckOperationsVerbose(s.model(without), ops, patience)
	v.Op, v.Around = stuck(ops, info)
	return v
}

// stuck returns the operation that returned first among those that the longest legal beginning leaves out,
// and the operations around it.
func stuck(ops []porcupine.Operation, info porcupine.LinearizationInfo) (culprit Op, around []Op) {
	var longest []int // operations are numbered as they were given
	for _, partition := range info.PartialLinearizations() {
		for _, each := range partition {
			if len(each) > len(longest) {
				longest = each
			}
		}
	}
	in := make([]bool, len(ops))
	for _, i := range longest {
		in[i] = true
	}
	at := -1
	for i, o := range ops {
		if !in[i] && (at < 0 || o.Return < ops[at].Return) {
			at = i
		}
	}
	if at < 0 {
		return culprit, nil
	}
	const before, after = 6, 4
	for i := max(0, at-before); i < min(len(ops), at+after); i++ {
		around = append(around, ops[i].Metadata.(Op))
	}
	return ops[at].Metadata.(Op), around
}
