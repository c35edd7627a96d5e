package history

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func init() {
	_ = flag.Set("rapid.checks", "50")
	_ = flag.Set("rapid.nofailfile", "true") // seeds are printed, and files would be left in the source
}

// A history that the models themselves have made is right.
func TestCheck_legalHistoriesPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, ops := range rapid.SliceOfN(legal(10, 90), 6, 6).Draw(t, "histories") {
			if err := errors.Join(CheckLeases(ops, Options{}).Err(), CheckSessions(ops, Options{}).Err()); err != nil {
				t.Error(err)
			}
		}
	})
}

// damages make a legal history one that cannot be, if they can find a place for it.
var damages = map[string]func(r random, ops []Op) ([]Op, bool){
	"a Load misses an acknowledged entry that is not the last": onLoad(func(r random, ops []Op, l *Op) bool {
		i := r.IntN(len(l.Seen))
		if !acknowledged(ops, l.Seen[i], l.Call) || i+1 >= len(l.Seen) || !acknowledged(ops, l.Seen[i], started(ops, l.Seen[i+1])) ||
			slices.ContainsFunc(ops, func(o Op) bool { // which might as well come between the two
				return o.Kind == Clear && o.Return >= started(ops, l.Seen[i]) && o.Call <= l.Return
			}) {
			return false
		}
		l.Seen = slices.Delete(slices.Clone(l.Seen), i, i+1)
		return true
	}),
	"a Load shows an entry twice": onLoad(func(r random, _ []Op, l *Op) bool {
		i := r.IntN(len(l.Seen))
		l.Seen = slices.Insert(slices.Clone(l.Seen), r.IntN(len(l.Seen)+1), l.Seen[i])
		return true
	}),
	"two entries that came one after the other change places": onLoad(func(r random, ops []Op, l *Op) bool {
		i := r.IntN(len(l.Seen))
		if i+1 >= len(l.Seen) || !acknowledged(ops, l.Seen[i], started(ops, l.Seen[i+1])) {
			return false
		}
		l.Seen = slices.Clone(l.Seen)
		l.Seen[i], l.Seen[i+1] = l.Seen[i+1], l.Seen[i]
		return true
	}),
	"an entry has never been saved": onLoad(func(r random, _ []Op, l *Op) bool {
		l.Seen = slices.Clone(l.Seen)
		l.Seen[r.IntN(len(l.Seen))] = "x"
		return true
	}),
	"the Save of an entry that was seen is dropped": func(r random, ops []Op) ([]Op, bool) {
		entry := ""
		for _, o := range ops {
			if len(o.Seen) > 0 && (entry == "" || r.IntN(3) == 0) {
				entry = o.Seen[r.IntN(len(o.Seen))]
			}
		}
		return slices.DeleteFunc(ops, func(o Op) bool { return o.Kind == Save && o.Entry == entry }), entry != ""
	},
	"a refused write is told ok": on(func(r random, ops []Op, o *Op) bool {
		if o.Kind != Save || o.Outcome != Stale || o.Turn != "" || !shownBefore(ops, o) {
			return false
		}
		o.Outcome = OK
		return true
	}),
	"an entry that was seen is told to be refused": on(func(r random, ops []Op, o *Op) bool {
		if o.Kind != Save || o.Outcome != OK || o.Turn != "" || started(ops, o.Entry) != o.Call ||
			!slices.ContainsFunc(ops, func(l Op) bool { return slices.Contains(l.Seen, o.Entry) }) {
			return false
		}
		o.Outcome, o.Mark = Stale, o.Fence+1
		return true
	}),
	"a token of a write is lowered": on(func(r random, ops []Op, o *Op) bool {
		if o.Kind != Save || o.Outcome != OK || o.Turn != "" || o.Fence < 2 {
			return false
		}
		o.Fence = 1
		return shownBefore(ops, o)
	}),
	"a token that is granted is lowered": on(func(r random, ops []Op, o *Op) bool {
		earlier := func(p Op) bool { return p.Kind == Acquire && p.Fence < o.Fence && p.Return < o.Call }
		if o.Kind != Acquire || !slices.ContainsFunc(ops, earlier) {
			return false
		}
		o.Fence = 1
		o.Process = "another"
		return true
	}),
	"the end of a lease is dropped": func(r random, ops []Op) ([]Op, bool) {
		for i, o := range slices.Backward(ops) {
			if o.Kind == Release && o.Outcome == OK && slices.ContainsFunc(ops, func(p Op) bool { return p.Kind == Acquire && p.Fence > o.Fence }) {
				return slices.Delete(ops, i, i+1), true
			}
		}
		return nil, false
	},
	"a lease is granted before the one before has ended": func(r random, ops []Op) ([]Op, bool) {
		for i := range ops {
			if o := ops[i]; o.Kind == Release || o.Kind == Killed || o.Kind == Stopped || o.Kind == Lost {
				for j := range ops[i:] {
					if next := &ops[i+j]; next.Kind == Acquire && r.IntN(2) == 0 {
						from := max(o.Call, o.Alive)
						if o.Kind == Lost {
							from = o.Alive
						}
						next.Call, next.Return = from-2, from-1
						return ops, from > 2
					}
				}
			}
		}
		return nil, false
	},
}

// on damages one operation, anywhere.
func on(f func(r random, ops []Op, o *Op) bool) func(random, []Op) ([]Op, bool) {
	return func(r random, ops []Op) ([]Op, bool) {
		start := r.IntN(len(ops))
		for i := range ops {
			at := (start + i) % len(ops)
			if damaged := ops[at]; f(r, ops, &damaged) {
				ops[at] = damaged
				return ops, true
			}
		}
		return nil, false
	}
}

func onLoad(f func(r random, ops []Op, l *Op) bool) func(random, []Op) ([]Op, bool) {
	return on(func(r random, ops []Op, o *Op) bool { return o.Kind == Load && len(o.Seen) > 0 && f(r, ops, o) })
}

// started is the first call of a Save of an entry.
func started(ops []Op, entry string) int64 {
	i := slices.IndexFunc(ops, func(o Op) bool { return o.Entry == entry })
	return ops[i].Call
}

// acknowledged reports whether a Save of an entry had returned ok before a moment.
func acknowledged(ops []Op, entry string, before int64) bool {
	return slices.ContainsFunc(ops, func(o Op) bool { return o.Entry == entry && o.Outcome == OK && o.Return < before })
}

// shownBefore reports whether the store had surely seen a higher token before an operation was called.
func shownBefore(ops []Op, o *Op) bool {
	return slices.ContainsFunc(ops, func(p Op) bool {
		return p.Fence > o.Fence && p.Outcome == OK && (p.Kind == Load || p.Kind == Clear || p.Kind == Save && p.Turn == "") && p.Return < o.Call
	})
}

func TestCheck_damagedHistoriesAreCaught(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			ops, ok := damage(random{t}, legal(10, 70).Draw(t, "history"))
			if !ok {
				t.SkipNow() // rapid makes another, and fails if few histories can be damaged
			}
			leases, sessions := CheckLeases(ops, Options{}), CheckSessions(ops, Options{})
			if len(leases.Violations)+len(sessions.Violations) == 0 && leases.Malformed == nil && sessions.Malformed == nil {
				t.Errorf("this was not caught: %v", ops)
			}
		}))
	}
}

// Many operations are checked within a minute: what takes longer is undecided.
func TestCheck_manyOperations(t *testing.T) {
	var ops []Op
	for key := range 100 {
		for _, o := range legal(100, 100).Example() {
			o.Key, o.Process = fmt.Sprint(key), fmt.Sprint(key, o.Process)
			ops = append(ops, o)
		}
	}
	if err := errors.Join(CheckLeases(ops, Options{}).Err(), CheckSessions(ops, Options{}).Err()); err != nil {
		t.Error(err)
	}
}

// One key that everybody uses is no harder than many.
func TestCheck_longSession(t *testing.T) {
	if err := CheckSessions(legal(5000, 5000).Example(), Options{}).Err(); err != nil {
		t.Error(err)
	}
}
