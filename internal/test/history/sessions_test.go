package history

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wrong is a history that has to be caught, and the promise it breaks.
type wrong struct {
	name    string
	promise promise
	ops     []Op
}

var wrongSessions = []wrong{
	{"S2: a stale write is accepted, after a Load", staleWrites, []Op{load(5, 0, 1), save(4, 2, 3, "A", OK), load(0, 4, 5, "A")}},
	{"S2: a stale write is accepted, after a Save", staleWrites, []Op{save(5, 0, 1, "A", OK), save(4, 2, 3, "B", OK)}},
	{"S2: a stale Clear is accepted", staleWrites, []Op{save(5, 0, 1, "A", OK), cleared(4, 2, 3, OK)}},
	{"S2: a holder writes after a Save outside of a turn", staleWrites, []Op{
		load(5, 0, 1), save(0, 2, 3, "A", OK), save(5, 4, 5, "B", OK)}},
	{"S2: a holder who was only told that its turn is known writes after a Save outside of a turn", staleWrites, []Op{
		save(4, 0, 1, "A", OK).as("t"), save(9, 2, 3, "A", OK).as("t"), save(0, 4, 5, "B", OK), save(9, 6, 7, "C", OK)}},
	{"S2: a stale Load is answered", staleLoads, []Op{save(5, 0, 1, "A", OK), load(4, 2, 3, "A")}},
	{"S2: a stale Load is answered while others write", staleLoads, []Op{
		save(5, 0, 1, "A", OK), load(4, 2, 5, "A", "B"), save(5, 3, 4, "B", OK)}},
	{"S2: a write that was refused is stored", refusedWrites, []Op{
		load(5, 0, 1), save(4, 2, 3, "A", Stale).marked(5), load(5, 4, 5, "A")}},
	{"S2: a write that was refused for its lock is stored", refusedWrites, []Op{save(0, 2, 3, "A", Nothing), load(5, 4, 5, "A")}},
	{"S2: refused for no token", unfoundedRefusals, []Op{save(4, 0, 1, "A", OK), save(5, 2, 3, "B", Stale).marked(5)}},
	{"S2: refused for a token that is shown later", unfoundedRefusals, []Op{save(4, 0, 1, "A", Stale).marked(5), load(5, 2, 3)}},
	{"S2: a Load is refused for no token", unfoundedRefusals, []Op{load(4, 0, 1), staleLoad(4, 2, 3, 4)}},
	{"O: an entry is back after a Clear", clears, []Op{save(4, 0, 1, "A", OK), cleared(5, 2, 3, OK), load(5, 4, 5, "A")}},
	{"O: a late write of an older lease stands behind a Clear", clears, []Op{
		save(4, 0, 0, "A", Unknown), cleared(5, 2, 3, OK), load(5, 4, 5), load(5, 6, 7, "A")}},
	{"O: a Clear does nothing", clears, []Op{
		save(4, 0, 1, "A", OK), cleared(4, 2, 3, OK), save(4, 4, 5, "B", OK), load(4, 6, 7, "A", "B")}},
	{"O: an entry stands there twice", entriesOnce, []Op{save(4, 0, 1, "A", OK), load(4, 2, 3, "A", "A")}},
	{"O: an entry without a turn ID stands there twice, the first unknown", entriesOnce, []Op{
		save(4, 0, 0, "A", Unknown), load(4, 2, 3, "A", "A")}},
	{"O: a retry is stored twice", entriesOnce, []Op{
		save(4, 0, 0, "A", Unknown).as("t"), save(5, 2, 3, "A", OK).as("t"), load(5, 4, 5, "A", "A")}},
	{"O: a retry is stored again after a Clear", turnsOnce, []Op{
		save(4, 0, 1, "A", OK).as("t"), cleared(4, 2, 3, OK), save(5, 4, 5, "A", OK).as("t"), load(5, 6, 7, "A")}},
	{"O: a turn ID is taken with other messages", turnsOnce, []Op{
		save(4, 0, 1, "A", OK).as("t"), save(5, 4, 5, "B", OK).as("t"), load(5, 6, 7, "A", "B")}},
	{"O: Saves of one lease change places", order, []Op{save(4, 0, 1, "A", OK), save(4, 2, 3, "B", OK), load(4, 4, 5, "B", "A")}},
	{"O: Saves of two leases change places", order, []Op{save(4, 0, 1, "A", OK), save(5, 2, 3, "B", OK), load(0, 4, 5, "B", "A")}},
	{"O: two Loads see two orders", order, []Op{
		save(4, 0, 0, "A", Unknown), save(4, 1, 0, "B", Unknown), load(0, 2, 3, "A", "B"), load(0, 4, 5, "B", "A")}},
	{"O: an entry is lost", nothingLost, []Op{
		save(4, 0, 1, "A", OK), save(4, 2, 3, "B", OK), save(4, 4, 5, "C", OK), load(0, 6, 7, "A", "C")}},
	{"O: a Load misses the last entry", nothingLost, []Op{save(4, 0, 1, "A", OK), load(5, 6, 7)}},
	{"O: a Save that was repeated is lost", nothingLost, []Op{
		save(4, 0, 0, "A", Unknown).as("t"), save(5, 2, 3, "A", OK).as("t"), load(5, 6, 7)}},
	{"O: what a Load has shown is lost", nothingLost, []Op{save(4, 0, 0, "A", Unknown), load(5, 2, 3, "A"), load(5, 4, 5)}},
	{"O: nobody has saved it", wholeEntries, []Op{save(4, 0, 1, "A", OK), load(4, 2, 3, "A", "X")}},
	{"O: an entry is torn", wholeEntries, []Op{save(4, 0, 0, "A", Unknown), load(4, 2, 3, `torn: "A" alone`)}},
	{"S2: a stale Replace is accepted", staleWrites, three(load(5, 6, 7, "A", "B", "C"), replaced(4, 8, 9, "A", "X", OK))},
	{"S2: a stale Delete is accepted", staleWrites, []Op{save(5, 0, 1, "A", OK), deleted(4, 2, 3, OK)}},
	{"S2: a Save is refused, and nothing but a Replace has shown its own token", unfoundedRefusals, three(
		replaced(4, 6, 7, "A", "X", OK), save(5, 8, 9, "D", Stale).marked(6))},
	{"O: a reader sees what a Replace removes, and what it adds", between, three(
		replaced(4, 6, 20, "B", "X", OK), load(0, 8, 9, "A", "B", "X", "C"))},
	{"O: a Replace is a Clear and Saves", between, three(replaced(4, 6, 20, "B", "X", OK), load(0, 8, 9))},
	{"O: a Replace removes, and adds later", between, three(replaced(4, 6, 20, "B", "X Y", OK), load(0, 8, 9, "A", "X", "C"))},
	{"O: a Replace of unknown outcome is done by half", between, three(
		replaced(4, 6, 0, "A B", "X", Unknown), load(0, 8, 9, "B", "C"))},
	{"O: the pages of a Load are of two revisions", between, three(
		replaced(4, 6, 20, "A B", "X", OK), load(0, 8, 21, "A", "X", "C"))},
	{"O: the last entries are of two revisions", between, three(
		replaced(4, 6, 20, "B C", "X", OK), load(0, 8, 21, "B", "X").last(2))},
	{"O: a reader sees half a Clear", between, three(cleared(4, 6, 20, OK), load(0, 8, 9, "B", "C"))},
	{"O: a reader sees half a Delete", between, three(deleted(4, 6, 20, OK), load(0, 8, 9, "B", "C"))},
	{"O: a Replace does nothing", replaces, three(replaced(4, 6, 7, "B", "X", OK), load(0, 8, 9, "A", "B", "C"))},
	{"O: a Replace only removes", replaces, three(replaced(4, 6, 7, "B", "X", OK), load(0, 8, 9, "A", "C"))},
	{"O: a Replace only adds", replaces, three(replaced(4, 6, 7, "B", "X", OK), load(0, 8, 9, "A", "B", "X", "C"))},
	{"O: a Replace leaves the end of its range", replaces, three(replaced(4, 6, 7, "A B", "X", OK), load(0, 8, 9, "X", "B", "C"))},
	{"O: a replaced entry is back", replaces, three(
		replaced(4, 6, 7, "B", "X", OK), load(0, 8, 9, "A", "X", "C"), load(0, 10, 11, "A", "B", "C"))},
	{"O: a Replace that was refused is done", replaces, three(
		load(5, 6, 7, "A", "B", "C"), replaced(4, 8, 9, "B", "X", Stale).marked(5), load(0, 10, 11, "A", "X", "C"))},
	{"O: a Replace whose range is missing is done", replaces, three(replaced(4, 6, 7, "B", "X", Nothing), load(0, 8, 9, "A", "X", "C"))},
	{"O: a Replace of a cleared range is acknowledged", replaces, three(cleared(4, 6, 7, OK), replaced(4, 8, 9, "B", "X", OK))},
	{"O: the range of a Replace is turned round", replaces, three(replaced(4, 6, 7, "B A", "X", OK))},
	{"O: a Replace comes late, under an older lease", between, three(
		replaced(4, 6, 0, "B", "X", Unknown), load(5, 8, 9, "A", "B", "C"), load(5, 10, 11, "A", "X", "C"))},
	{"O: a Replace loses an entry behind its range", nothingLost, three(replaced(4, 6, 7, "A", "X", OK), load(0, 8, 9, "X", "C"))},
	{"O: a Replace loses a Save that came in between", nothingLost, three(
		replaced(4, 6, 9, "A", "X", OK), save(4, 7, 8, "D", OK), load(0, 10, 11, "X", "B", "C"))},
	{"O: a Replace puts its entries at the end", order, three(replaced(4, 6, 7, "A", "X", OK), load(0, 8, 9, "B", "C", "X"))},
	{"O: a Replace is done twice", entriesOnce, three(replaced(4, 6, 7, "A", "X", OK), load(0, 8, 9, "X", "X", "B", "C"))},
	{"O: a turn ID is not known after a Replace", turnsOnce, []Op{
		save(4, 0, 1, "A", OK).as("t"), replaced(4, 2, 3, "A", "X", OK), save(5, 4, 5, "A", OK).as("t"), load(0, 6, 7, "X", "A")}},
	{"O: the last entries are not the end", nothingLost, three(load(0, 6, 7, "A", "B").last(2))},
	{"O: of the last entries there are none", nothingLost, three(load(0, 6, 7).last(2))},
	{"O: of fewer entries than were asked for, one is missing", nothingLost, three(load(0, 6, 7, "B", "C").last(3))},
	{"O: an entry is back after a Delete", clears, three(deleted(4, 6, 7, OK), load(0, 8, 9, "C"))},
	{"O: a late write of an older lease stands behind a Delete", clears, []Op{
		save(4, 0, 0, "A", Unknown), deleted(5, 2, 3, OK), load(5, 4, 5), load(5, 6, 7, "A")}},
	{"O: a turn ID outlives a Delete", forgets, []Op{
		save(4, 0, 1, "A", OK).as("t"), deleted(4, 2, 3, OK), save(5, 4, 5, "A", OK).as("t"), load(0, 6, 7)}},
	{"O: an exchange of many messages is torn", wholeEntries, []Op{save(4, 0, 0, "A", Unknown), load(4, 2, 3, `torn: 2 of 3 of "A"`)}},
	{"O: refused as deleted, without a Delete", deletions, three(load(5, 6, 7).waited(5))},
	{"O: refused as deleted, for a Clear", deletions, three(cleared(5, 6, 7, OK), save(6, 8, 9, "D", OK).waited(5))},
	{"O: refused as deleted, and began after the Delete", deletions, three(deleted(5, 6, 7, OK), load(6, 9, 10).waited(8))},
	{"S2: a write that was refused as deleted is stored", refusedWrites, three(
		deleted(5, 6, 7, OK), save(6, 8, 9, "D", OK).waited(5), load(7, 10, 11, "D"))},
	{"O: a conflict with nothing", conflicts, []Op{save(4, 0, 1, "A", OK).as("t"), save(4, 2, 3, "A", Conflict).as("t")}},
}

var rightSessions = map[string][]Op{
	"a turn after the other": {load(4, 0, 1), save(4, 2, 3, "A", OK), load(5, 4, 5, "A"), save(5, 6, 7, "B", OK), load(0, 8, 9, "A", "B")},
	"unknown, and happened":  {save(4, 0, 0, "A", Unknown), load(5, 2, 3, "A"), save(5, 4, 5, "B", OK), load(5, 6, 7, "A", "B")},
	"unknown, and never":     {save(4, 0, 0, "A", Unknown), load(5, 2, 3), save(5, 4, 5, "B", OK), load(5, 6, 7, "B")},
	"unknown, and later":     {save(4, 0, 0, "A", Unknown), load(0, 2, 3), load(0, 4, 5, "A")},
	"unknown, later, and overtaken by a Save of its own lease": {
		save(4, 0, 0, "A", Unknown), save(4, 2, 3, "B", OK), load(0, 4, 5, "B"), load(0, 6, 7, "B", "A")},
	"unknown outside, after a Clear":        {save(0, 0, 0, "A", Unknown), cleared(5, 2, 3, OK), load(0, 4, 5), load(0, 6, 7, "A")},
	"unknown, then cleared":                 {save(4, 0, 0, "A", Unknown), cleared(5, 2, 3, OK), load(0, 4, 5)},
	"a Clear that is unknown, and happened": {save(4, 0, 1, "A", OK), cleared(5, 2, 0, Unknown), load(0, 4, 5)},
	"a Clear that is unknown, and never":    {save(4, 0, 1, "A", OK), cleared(5, 2, 0, Unknown), load(6, 4, 5, "A")},
	"a Clear that is unknown, and later":    {save(4, 0, 1, "A", OK), cleared(5, 2, 0, Unknown), load(0, 4, 5, "A"), load(0, 6, 7)},
	"repeated, the first was stored": {
		save(4, 0, 0, "A", Unknown).as("t"), load(0, 1, 2, "A"), save(5, 3, 4, "A", OK).as("t"), load(0, 5, 6, "A")},
	"repeated, the first was not": {
		save(4, 0, 0, "A", Unknown).as("t"), load(0, 1, 2), save(5, 3, 4, "A", OK).as("t"), load(0, 5, 6, "A")},
	"repeated after a Clear": {
		save(4, 0, 1, "A", OK).as("t"), cleared(4, 2, 3, OK), save(5, 4, 5, "A", OK).as("t"), load(0, 6, 7)},
	"repeated by a stale holder": {
		save(4, 0, 1, "A", OK).as("t"), load(6, 2, 3, "A"), save(5, 4, 5, "A", OK).as("t"), load(0, 6, 7, "A")},
	"repeated, and shown to be higher or not": {
		save(4, 0, 1, "A", OK).as("t"), save(9, 2, 3, "A", OK).as("t"), save(5, 4, 5, "B", OK), load(0, 6, 7, "A", "B")},
	"repeated, and shown to be higher": {
		save(4, 0, 1, "A", OK).as("t"), save(9, 2, 3, "A", OK).as("t"), save(5, 4, 5, "B", Stale).marked(9), load(0, 6, 7, "A")},
	"another turn": {
		save(4, 0, 1, "A", OK).as("t"), save(4, 2, 3, "B", Conflict).as("t"), load(0, 6, 7, "A")},
	"refused for a Load": {
		load(5, 0, 1), save(4, 2, 3, "A", Stale).marked(5), staleLoad(4, 4, 5, 5), load(5, 6, 7)},
	"refused while the Load is on":              {load(5, 0, 9), save(4, 2, 3, "A", Stale).marked(5)},
	"accepted while the Load is on":             {load(5, 0, 9, "A"), save(4, 2, 3, "A", OK), load(0, 10, 11, "A")},
	"overtaken between the two steps of a Load": {load(5, 0, 9, "A"), save(6, 2, 3, "A", OK), save(5, 10, 11, "B", Stale).marked(6)},
	"refused for a Save that is unknown":        {save(5, 0, 0, "B", Unknown), save(4, 2, 3, "A", Stale).marked(5)},
	"refused for one outside": {
		load(4, 0, 1), save(0, 2, 3, "A", OK), save(4, 4, 5, "B", Stale).marked(7), load(0, 6, 7, "A")},
	"refused by the lock": {save(4, 4, 5, "B", Stale)},
	"a late Load of an older lease": {
		load(4, 0, 1), save(5, 2, 3, "A", OK), load(4, 4, 5, "A"), save(4, 6, 7, "B", Stale).marked(5)},
	"replaced": three(replaced(4, 6, 7, "A B", "X Y Z", OK), load(0, 8, 9, "X", "Y", "Z", "C"),
		replaced(5, 10, 11, "Z C", "", OK), load(0, 12, 13, "X", "Y"), replaced(6, 14, 15, "X Y", "", OK), load(0, 16, 17)),
	"a Load at the time of a Replace, before and after": three(
		replaced(4, 6, 20, "B", "X", OK), load(0, 7, 10, "A", "B", "C"), load(0, 11, 19, "A", "X", "C")),
	"a Replace that is unknown, and happened": three(replaced(4, 6, 0, "B", "X", Unknown), load(5, 8, 9, "A", "X", "C")),
	"a Replace that is unknown, and never":    three(replaced(4, 6, 0, "B", "X", Unknown), load(5, 8, 9, "A", "B", "C")),
	"a Replace that is unknown, and later": three(
		replaced(4, 6, 0, "B", "", Unknown), load(0, 8, 9, "A", "B", "C"), load(0, 10, 11, "A", "C"), load(5, 12, 13, "A", "C")),
	"a Replace that is unknown, and repeated": three(
		replaced(4, 6, 0, "B", "X", Unknown), replaced(4, 8, 9, "B", "Y", Nothing), load(0, 10, 11, "A", "X", "C")),
	"a Replace that is unknown, and its range is gone": three(
		replaced(4, 6, 0, "B", "X", Unknown), cleared(4, 8, 9, OK), load(0, 10, 11)),
	"a Replace that was refused": three(
		load(5, 6, 7, "A", "B", "C"), replaced(4, 8, 9, "B", "X", Stale).marked(5), load(0, 10, 11, "A", "B", "C")),
	"refused for a Replace without a range": three(replaced(5, 6, 7, "X", "Y", Nothing), save(4, 8, 9, "D", Stale).marked(5)),
	"a Save beside a Replace":               three(replaced(4, 6, 9, "C", "X", OK), save(4, 7, 8, "D", OK), load(0, 10, 11, "A", "B", "X", "D")),
	"repeated after a Replace": {
		save(4, 0, 1, "A", OK).as("t"), replaced(4, 2, 3, "A", "X", OK), save(5, 4, 5, "A", OK).as("t"), load(0, 6, 7, "X")},
	"deleted": three(deleted(5, 6, 7, OK), load(0, 8, 9), save(5, 10, 11, "D", OK), load(0, 12, 13, "D")),
	"a Delete that is unknown, and later": three(
		deleted(5, 6, 0, Unknown), load(0, 8, 9, "A", "B", "C"), load(0, 10, 11)),
	"refused as deleted": three(deleted(5, 6, 7, OK), load(6, 8, 9).waited(5), save(6, 10, 11, "D", OK).waited(5), load(0, 12, 13)),
	"refused as deleted, while the Delete is on, or unknown": three(
		deleted(5, 6, 20, OK), load(6, 8, 9).waited(7), deleted(7, 22, 0, Unknown), load(8, 23, 24).waited(22), save(6, 26, 27, "D", Stale).marked(8)),
	"stored again after a Delete": {
		save(4, 0, 1, "A", OK).as("t"), deleted(4, 2, 3, OK), save(5, 4, 5, "A", OK).as("t"), load(0, 6, 7, "A")},
	"stored again after a Delete, by a call whose outcome is unknown": {
		save(4, 0, 1, "A", OK).as("t"), deleted(4, 2, 3, OK), save(5, 4, 0, "A", Unknown).as("t"), load(0, 6, 7, "A"),
		deleted(5, 8, 9, OK), load(0, 10, 11)},
	"another turn under the ID, after a Delete": {
		save(4, 0, 1, "A", OK).as("t"), deleted(4, 2, 3, OK), save(5, 4, 5, "B", OK).as("t"), load(0, 6, 7, "B")},
	"the last entries":             three(load(0, 6, 7, "B", "C").last(2), load(0, 8, 9, "A", "B", "C").last(3), load(0, 10, 11, "A", "B", "C").last(9)),
	"the last of a turn":           three(load(0, 6, 7, "A", "B", "C").last(2), load(0, 8, 9, "C").last(2)),
	"two Saves at once":            {save(4, 0, 5, "A", OK), save(4, 1, 4, "B", OK), load(0, 6, 7, "B", "A")},
	"a Load at the time of a Save": {save(4, 0, 5, "A", OK), load(0, 1, 2, "A"), load(4, 3, 9, "A")},
}

// Each is found, by the one clause that is named: without that, it is not.
func TestCheck_wrong(t *testing.T) {
	used := promise(0)
	for _, h := range wrongSessions {
		used |= h.promise
		t.Run(h.name, func(t *testing.T) {
			v, err := Check(h.ops, time.Minute)
			if err != nil || v == nil {
				t.Fatalf("%v, %v, want a violation", v, err)
			}
			if v.promise != h.promise || !strings.HasPrefix(h.name, v.Letter) || len(v.Around) == 0 || !strings.Contains(v.String(), `p {"kind":`) {
				t.Errorf("found was %s", v)
			}
			if v, err := checkWithout(h.ops, time.Minute, h.promise); v != nil || err != nil {
				t.Errorf("without its clause it is caught as well: %v, %v", v, err)
			}
		})
	}
	for _, p := range promises {
		if used&p.promise == 0 {
			t.Errorf("nothing here breaks the promise %q", p.text)
		}
	}
}

func TestCheck_right(t *testing.T) {
	for name, ops := range rightSessions {
		t.Run(name, func(t *testing.T) {
			if v, err := Check(ops, time.Minute); v != nil || err != nil {
				t.Errorf("%v, %v", v, err)
			}
		})
	}
}

func TestCheck_undecidedIsAnError(t *testing.T) {
	// Twelve Saves at once have 12! orders, and the Load fits none.
	ops := []Op{load(5, 20, 21, "nobody's")}
	for i := range 12 {
		ops = append(ops, save(4, 0, 10, strconv.Itoa(i), OK))
	}
	if v, err := Check(ops, 10*time.Millisecond); v != nil || !errors.Is(err, ErrUndecided) {
		t.Errorf("%v, %v", v, err)
	}
}

func TestCheck_malformedIsAnError(t *testing.T) {
	for name, ops := range map[string][]Op{
		"two Saves without a turn ID have one entry": {save(4, 0, 1, "A", OK), save(4, 2, 3, "A", OK)},
		"a Replace has no range":                     {replaced(4, 0, 1, "", "X", OK)},
		"a Save and a Replace have one entry":        {save(4, 0, 1, "A", OK), replaced(4, 2, 3, "A", "A", OK)},
		"a Save does not say what":                   {save(4, 0, 1, "", OK)},
		"one that is ok has not returned":            {save(4, 5, 1, "A", OK)},
	} {
		if v, err := Check(ops, time.Minute); v != nil || err == nil {
			t.Error(name)
		}
	}
}
