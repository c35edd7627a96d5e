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

// Options are those of a check. The zero value is the strict one.
type Options struct {
	// Timeout bounds the whole check; default one minute.
	Timeout time.Duration

	without promise // what the model leaves out, for tests
}

// Verdict is what a check has found.
type Verdict struct {
	Keys, Ops  int // that were checked
	Violations []Violation
	// Undecided are keys whose check took too long. They may be right or wrong, so the verdict is no success.
	Undecided []string
	// Malformed says why records cannot be those of a real run. Then nothing was checked.
	Malformed error
}

// Violation is a promise that was broken for one key.
type Violation struct {
	Key    string // hash
	Letter string // of the promise in docs/guarantees.md; "?" if no single one explains it
	Text   string // of the promise
	Op     Op     // the first operation for which the model has no place
	Around []Op   // that one, and those that came before and after it

	promise promise
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "key %s: %s is broken: %s\n  there is no place for\n    %s\n  around it:\n", v.Key, v.Letter, v.Text, v.Op)
	for _, o := range v.Around {
		fmt.Fprintf(&b, "    %s\n", o)
	}
	return b.String()
}

// Err is nil if everything was checked and every promise held. "Undecided" is an error.
func (v Verdict) Err() error {
	err := v.Malformed
	for _, each := range v.Violations {
		err = errors.Join(err, errors.New(each.String()))
	}
	if len(v.Undecided) > 0 {
		err = errors.Join(err, fmt.Errorf("%d keys are undecided, their check took too long, or was not begun: %s …",
			len(v.Undecided), strings.Join(v.Undecided[:min(5, len(v.Undecided))], ", ")))
	}
	return err
}

// forever is the return of what never returned.
const forever = math.MaxInt64

// prepared is the history of one key. build makes what porcupine is to check, without the clauses in without.
type prepared struct {
	key   string
	size  int
	build func(without promise) (porcupine.Model, []porcupine.Operation)
}

// check checks one key after the other, in this goroutine: callers decide how much of the machine they spend.
func check(histories []prepared, opts Options) (v Verdict) {
	deadline := time.Now().Add(cmp.Or(opts.Timeout, time.Minute))
	for _, h := range histories {
		v.Keys++
		v.Ops += h.size
		switch h.check(opts.without, time.Until(deadline)) {
		case porcupine.Unknown:
			v.Undecided = append(v.Undecided, h.key)
		case porcupine.Illegal:
			v.Violations = append(v.Violations, h.explain(opts))
		}
	}
	return v
}

func (h prepared) check(without promise, limit time.Duration) porcupine.CheckResult {
	if limit <= 0 { // which would be no limit
		return porcupine.Unknown
	}
	model, ops := h.build(without)
	return porcupine.CheckOperationsTimeout(model, ops, limit)
}

// patience is how long a question about a violation may take, which is known to be one already.
const patience = 5 * time.Second

// explain finds the promise without which the history would be right.
func (h prepared) explain(opts Options) Violation {
	v := Violation{Key: h.key, Letter: "?", Text: "no single promise explains it"}
	for _, p := range promises {
		if opts.without&p.promise == 0 && h.check(opts.without|p.promise, patience) == porcupine.Ok {
			v.Letter, v.Text, v.promise = p.letter, p.text, p.promise
			break
		}
	}
	model, ops := h.build(opts.without)
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	_, info := porcupine.CheckOperationsVerbose(model, ops, patience)
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

// byKey sorts the operations by key and time.
func byKey(ops []Op) (keys []string, of map[string][]Op) {
	of = make(map[string][]Op)
	for _, o := range ops {
		if of[o.Key] == nil {
			keys = append(keys, o.Key)
		}
		of[o.Key] = append(of[o.Key], o)
	}
	slices.Sort(keys)
	for _, key := range keys {
		slices.SortStableFunc(of[key], func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	}
	return keys, of
}
