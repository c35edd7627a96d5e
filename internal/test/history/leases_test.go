package history

import "testing"

// wrong is a history that has to be caught, and the promise it breaks.
type wrong struct {
	name    string
	promise promise
	ops     []Op
}

var wrongLeases = []wrong{
	{"S1: granted while another holds it", exclusion, []Op{
		granted("a", 1, 0, 1), granted("b", 2, 5, 6), released("a", 1, 8, 9, OK), released("b", 2, 10, 11, OK)}},
	{"S1: granted after a request to release that has not been sent yet", exclusion, []Op{
		granted("a", 1, 0, 1), granted("b", 2, 5, 6), released("a", 1, 7, 0, Unknown)}},
	{"S1: granted before the holder was killed", exclusion, []Op{granted("a", 1, 0, 1), granted("b", 2, 5, 6), done(Killed, "a", 7)}},
	{"S1: granted before the holder was stopped", exclusion, []Op{granted("a", 1, 0, 1), granted("b", 2, 5, 6), done(Stopped, "a", 7)}},
	{"S1: granted although the holder was seen to live after it was stopped", exclusion, []Op{
		granted("a", 1, 0, 1), done(Stopped, "a", 2), granted("b", 2, 5, 6),
		{Kind: Release, Process: "a", Key: "k", Fence: 1, Alive: 7, Call: 8, Return: 9, Outcome: OK}}},
	{"S1: granted although another process was killed", exclusion, []Op{
		granted("a", 1, 0, 1), done(Killed, "c", 2), granted("b", 2, 5, 6)}},
	{"S1: the process was killed before it was granted the lease", exclusion, []Op{
		done(Killed, "a", 0), granted("a", 1, 2, 3), granted("b", 2, 5, 6)}},
	{"S1: nobody ended it", exclusion, []Op{granted("a", 1, 0, 1), granted("a", 2, 5, 6)}},
	{"S1: a failover comes after the second grant", exclusion, []Op{
		granted("a", 1, 0, 1), granted("b", 2, 5, 6), done(Forgot, "judge", 7)}},
	{"N: told after another holds it", notice, []Op{
		granted("a", 1, 0, 1), granted("b", 2, 5, 6), lost("a", 1, 7, 8), released("b", 2, 10, 11, OK)}},
	{"N: told late, in a chain of three", notice, []Op{
		granted("a", 1, 0, 1), lost("a", 1, 2, 3), granted("b", 2, 4, 5), granted("c", 3, 6, 8), lost("b", 2, 9, 10)}},
	{"S1: a release answers ok after the loss", ownRelease, []Op{
		granted("a", 1, 0, 1), lost("a", 1, 1, 4), granted("b", 2, 5, 6), released("a", 1, 7, 8, OK)}},
	{"S1: a release answers ok after the loss, and nobody came", ownRelease, []Op{
		granted("a", 1, 0, 1), lost("a", 1, 1, 4), released("a", 1, 7, 8, OK)}},
	{"S1: a release ends the lease of another", exclusion, []Op{
		granted("a", 1, 0, 1), lost("a", 1, 1, 2), granted("b", 2, 3, 4), released("a", 1, 5, 6, Gone), granted("c", 3, 7, 8),
		released("b", 2, 9, 10, OK)}},
	{"S2: a token falls", risingFences, []Op{
		granted("a", 5, 0, 1), released("a", 5, 2, 3, OK), granted("b", 4, 5, 6), released("b", 4, 7, 8, OK)}},
	{"S2: a token is granted twice", risingFences, []Op{
		granted("a", 5, 0, 1), released("a", 5, 2, 3, OK), granted("b", 5, 5, 6), released("b", 5, 7, 8, OK)}},
	{"S2: tokens fall over a release that is unknown", risingFences, []Op{
		granted("a", 5, 0, 1), released("a", 5, 2, 0, Unknown), granted("b", 4, 5, 6)}},
}

var rightLeases = map[string][]Op{
	"one after the other":            {granted("a", 1, 0, 1), released("a", 1, 2, 3, OK), granted("b", 2, 4, 5)},
	"the second waited all the time": {granted("b", 2, 0, 5), granted("a", 1, 1, 2), released("a", 1, 3, 6, OK)},
	"granted while the release is on": {
		granted("a", 1, 0, 1), granted("b", 2, 2, 5), released("a", 1, 4, 9, OK), released("b", 2, 7, 8, OK)},
	"a release that is unknown": {granted("a", 1, 0, 1), released("a", 1, 2, 0, Unknown), granted("b", 2, 4, 5)},
	"a release that took effect later": {
		granted("a", 1, 0, 1), released("a", 1, 2, 0, Unknown), granted("b", 2, 4, 50), released("b", 2, 51, 52, OK)},
	"a release that is repeated": {
		granted("a", 1, 0, 1), released("a", 1, 2, 0, Unknown), granted("b", 2, 4, 5), released("a", 1, 6, 7, OK)},
	"a release that is repeated after ok": {granted("a", 1, 0, 1), released("a", 1, 2, 3, OK), released("a", 1, 6, 7, OK)},
	"a release that came too late": {
		granted("a", 1, 0, 1), lost("a", 1, 1, 3), granted("b", 2, 4, 5), released("a", 1, 6, 7, Gone)},
	"told just in time":         {granted("a", 1, 0, 1), lost("a", 1, 3, 5), granted("b", 2, 2, 5), released("b", 2, 6, 7, OK)},
	"noted late, told in time":  {granted("a", 1, 0, 1), granted("b", 2, 2, 6), lost("a", 1, 4, 9)},
	"killed, and expired later": {granted("a", 1, 0, 1), done(Killed, "a", 2), granted("b", 2, 3, 40)},
	"killed in a release": {
		granted("a", 1, 0, 1), released("a", 1, 2, 0, Unknown), done(Killed, "a", 3), granted("b", 2, 4, 5)},
	"stopped, overtaken, told": {
		granted("a", 1, 0, 1), done(Stopped, "a", 2), granted("b", 2, 5, 6), lost("a", 1, 1, 9), released("a", 1, 10, 11, Gone)},
	"stopped, and lives on": {
		granted("a", 1, 0, 1), done(Stopped, "a", 2), released("a", 1, 10, 11, OK), granted("b", 2, 10, 12)},
	"an acquisition that is unknown": {
		granted("a", 1, 0, 1), {Kind: Acquire, Process: "b", Key: "k", Call: 2}, released("a", 1, 4, 5, OK), granted("c", 7, 6, 7)},
	"and its lease is lost": {{Kind: Acquire, Process: "b", Key: "k", Call: 2}, lost("b", 3, 3, 4), granted("c", 7, 5, 6)},
	"one that was refused": {
		granted("a", 1, 0, 1), {Kind: Acquire, Process: "b", Key: "k", Call: 2, Return: 3, Outcome: Nothing}},
	"a failover, and two hold it": {
		granted("a", 1, 0, 1), done(Forgot, "judge", 4), granted("b", 2, 5, 6), lost("a", 1, 7, 9), released("b", 2, 10, 11, OK)},
	"tokens with gaps": {granted("a", 1, 0, 1), released("a", 1, 2, 3, OK), granted("b", 1000, 4, 5)},
}

func TestCheckLeases_wrong(t *testing.T) { caught(t, wrongLeases, CheckLeases) }

func TestCheckLeases_right(t *testing.T) { accepted(t, rightLeases, CheckLeases) }

// caught checks that each is found, by its name, and by the one clause that is named: without that,
// it is not.
func caught(t *testing.T, histories []wrong, check func([]Op, Options) Verdict) {
	used := promise(0)
	for _, h := range histories {
		used |= h.promise
		t.Run(h.name, func(t *testing.T) {
			v := check(h.ops, Options{})
			if v.Malformed != nil || len(v.Undecided) > 0 || len(v.Violations) != 1 || v.Err() == nil {
				t.Fatalf("%+v, want one violation", v)
			}
			if got := v.Violations[0]; got.promise != h.promise || got.Key != "k" || len(got.Around) == 0 {
				t.Errorf("found was %s", got)
			}
			if err := check(h.ops, Options{without: h.promise}).Err(); err != nil {
				t.Errorf("without its clause it is caught as well: %v", err)
			}
			for _, p := range promises {
				if p.promise == h.promise && p.letter != h.name[:len(p.letter)] {
					t.Errorf("the promise is one of %s", p.letter)
				}
			}
		})
	}
	for _, p := range promises {
		if used&p.promise == 0 && (p.promise < staleWrites) == (used < staleWrites) {
			t.Errorf("nothing here breaks the promise %q", p.text)
		}
	}
}

func accepted(t *testing.T, histories map[string][]Op, check func([]Op, Options) Verdict) {
	for name, ops := range histories {
		t.Run(name, func(t *testing.T) {
			v := check(ops, Options{})
			if err := v.Err(); err != nil {
				t.Error(err)
			}
			if v.Keys != 1 || v.Ops == 0 {
				t.Errorf("nothing was checked: %+v", v)
			}
		})
	}
}
