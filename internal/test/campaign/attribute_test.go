package campaign

import (
	"fmt"
	"testing"
	"time"
)

// book is a campaign that was, with what its register and its ledger know.
func book(t *testing.T) *campaign {
	c := &campaign{t: t, plan: planFor("node", 1, time.Second), stats: make(map[*fault]*stat), start: now()}
	c.windows.ttl = c.plan.ttl
	c.register, c.ledger = newRegister(c), newLedger(c)
	return c
}

// judged returns the findings, and the counts of those that are judged apart.
func (c *campaign) judged() string {
	c.attribute()
	wrong, apart := make(map[string]int), make(map[string]int)
	for _, f := range c.wrong {
		wrong[f.kind]++
	}
	for _, s := range c.stats {
		for kind, n := range s.apart {
			apart[kind] += n
		}
	}
	return fmt.Sprintf("%s, apart %s", list(wrong), list(apart))
}

// clash has run 2 come in while run 1 is inside, which then says what it knows.
func (c *campaign) clash(says func(at int64) said) {
	enter := func(run int, fence int64) {
		c.register.enter(&said{Run: run, Lease: 1, Key: "key", Fence: fence, Began: now(), Got: now()})
	}
	enter(1, 10)
	enter(2, 20)
	leave := says(now())
	leave.Run, leave.Lease, leave.Key = 1, 1, "key"
	if c.register.leave(&leave).Refused && leave.Text == "released" {
		c.register.trusted(&said{Run: 1, Key: "key", Fence: 10, Trusted: now()})
	}
}

// Two who trust their leases at once break S1, unless a fault is felt that may do that, by one of
// them, or by all.
func TestAttribute_windows(t *testing.T) {
	trusts := func(at int64) said { return said{Trusted: at + 1} }
	late := func(at int64) said { return said{Ended: at + int64(50*time.Millisecond)} }
	for _, test := range []struct {
		name   string
		window func(*campaign)
		says   func(at int64) said
		want   string
	}{
		{"no fault", nil, trusts, "1 (1 S1), apart 0"},
		{"told late", nil, late, "1 (1 N), apart 0"},
		{"told late, and not run for longer", nil, func(at int64) said {
			return said{Ended: at + 50e6, Naps: []span{{at - 20e6, at + 40e6}}}
		}, "0, apart 0"},
		{"told late, and not run for less", nil, func(at int64) said {
			return said{Ended: at + 50e6, Naps: []span{{at - 20e6, at + 20e6}}}
		}, "1 (1 N), apart 0"},
		{"told late, and not run long before", nil, func(at int64) said {
			return said{Ended: at + 50e6, Naps: []span{{at - 900e6, at - 35e6}}}
		}, "1 (1 N), apart 0"},
		{"told late, and not run since", nil, func(at int64) said {
			return said{Ended: at + 50e6, Naps: []span{{at + 50e6, at + 900e6}}}
		}, "1 (1 N), apart 0"},
		{"never told", nil, func(int64) said { return said{} }, "1 (1 N), apart 0"},
		{"told in time", nil, func(at int64) said { return said{Ended: at - int64(time.Second)} }, "0, apart 0"},
		{"told in time, and its release has ended another lease", nil, func(at int64) said {
			return said{Ended: at - int64(time.Second), Text: "released"}
		}, "1 (1 S1), apart 0"},
		{"released by Close, and again", nil, func(at int64) said {
			return said{Ended: at - int64(time.Second), Closed: true, Text: "released"}
		}, "0, apart 0"},
		{"over before", nil, func(at int64) said { return said{Trusted: at - int64(time.Second)} }, "0, apart 0"},
		{"a fault that breaks nothing", func(c *campaign) { c.windows.open(serverFaults[1], 0, now()) }, trusts, "1 (1 S1), apart 0"},
		{"the server restarts empty", func(c *campaign) { c.windows.open(serverFaults[0], 0, now()) }, trusts, "0, apart 1 (1 S1)"},
		{"it has, and it is over", func(c *campaign) {
			c.windows.open(serverFaults[0], 0, c.start-10*int64(c.plan.ttl)).until = c.start - 1
		}, trusts, "1 (1 S1), apart 0"},
		{"another master of a cluster does", func(c *campaign) {
			c.windows.spare(c.windows.open(serverFaults[0], 0, now()), func(key string) bool { return key == "key" })
		}, trusts, "1 (1 S1), apart 0"},
		{"released by Close, and told a bit late", nil, func(at int64) said { return said{Ended: at + 5e6, Closed: true} }, "0, apart 0"},
		{"released by Close, and told late", nil, func(at int64) said { return said{Ended: at + 50e6, Closed: true} }, "1 (1 N), apart 0"},
		{"the server restarts empty, and it is never told", func(c *campaign) { c.windows.open(serverFaults[0], 0, now()) },
			func(int64) said { return said{} }, "1 (1 N), apart 0"},
		{"the server restarts empty, and it is told when that is over", func(c *campaign) {
			c.windows.open(serverFaults[0], 0, now()).until = c.start + int64(10*time.Second)
		}, func(at int64) said { return said{Ended: at + int64(11*time.Second)} }, "1 (1 N), apart 0"},
		{"the first is stopped", func(c *campaign) { c.windows.open(workerFaults[1], 1, now()) }, late, "0, apart 1 (1 N)"},
		{"the first is stopped, and trusts", func(c *campaign) { c.windows.open(workerFaults[1], 1, now()) }, trusts, "1 (1 S1), apart 0"},
		{"the second is stopped", func(c *campaign) { c.windows.open(workerFaults[1], 2, now()) }, trusts, "1 (1 S1), apart 0"},
		{"somebody else is stopped", func(c *campaign) { c.windows.open(workerFaults[1], 3, now()) }, late, "1 (1 N), apart 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			if test.window != nil {
				test.window(c)
			}
			c.clash(test.says)
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// A note that outlives an acknowledged Clear is a violation, unless servers have lost the Clear.
func TestAttribute_survivesAClear(t *testing.T) {
	note, stored := savedTurn(1, 10, 103, 0)
	note.Session, note.Kind = "e0/notes-0", aNote
	clear := &attempt{Run: 2, Session: note.Session, Kind: aClear, Begun: 200, Sent: 201, Done: 202, Ended: 203, End: saved}
	for _, test := range []struct {
		name          string
		after, killed int64
		want          string
	}{
		{"nothing forgotten", 0, 0, "1 (1 O), apart 0"},
		{"the Clear is forgotten", 150, 300, "0, apart 1 (1 O)"},
		{"what came later is", 250, 300, "1 (1 O), apart 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			w := c.windows.open(serverFaults[0], 0, 0)
			if test.killed != 0 {
				c.windows.forget(w, test.after, test.killed)
			}
			v := &verdict{c: c, session: note.Session, stored: stored, attempts: []*attempt{note, clear}}
			v.notes()
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// A fault without any effect does not count.
func TestCause_countsWhatHasStruck(t *testing.T) {
	c := book(t)
	f := &fault{name: "some", of: ofWorker, strike: func(c *campaign, h *hit) {
		if h.n == 0 {
			c.misses(h, "there is no worker")
		}
	}}
	for n := range 3 {
		c.cause(&hit{fault: f, n: n})
	}
	if struck, missed := c.struck(); struck != 2 || missed != 1 {
		t.Errorf("%d faults had an effect, and %d had none, want 2 and 1", struck, missed)
	}
}

// What the loss of a master may cause is excused from the moment in which it is killed, and not
// while that is prepared.
func TestForgets_beginsWithTheKill(t *testing.T) {
	c := book(t)
	c.histories = newHistories(c)
	h := &hit{fault: serverFaults[0]}
	h.window = c.windows.open(h.fault, 0, now())
	before := now()
	over := c.forgets(h)
	during := now()
	over()
	if f := c.windows.broken(before, before, "key", 0); f != nil {
		t.Errorf("%s excuses an earlier finding", f.name)
	}
	if f := c.windows.broken(during, during, "key", 0); f == nil {
		t.Error("nothing is excused that comes after it")
	}
	after := now() + int64(2*c.plan.ttl)
	if f := c.windows.broken(after, after, "key", 0); f != nil {
		t.Errorf("%s excuses what comes long after it", f.name)
	}
}

// Before servers are emptied, all finished work has to be there. Work in progress may be there.
func TestLedger_judgesSoFar(t *testing.T) {
	turn, _ := savedTurn(1, 10, 20, 0)
	note := *turn
	note.Session, note.Kind = "e0/notes-0", aNote
	clear := &attempt{Run: 2, Session: note.Session, Kind: aClear, Begun: 40, Sent: 41}
	for _, test := range []struct {
		name     string
		moment   int64
		attempts []*attempt
		want     string
	}{
		{"a turn that was over", 31, []*attempt{turn}, "1 (1 lost), apart 0"},
		{"a turn that was under way", 30, []*attempt{turn}, "0, apart 0"},
		{"a note that was over", 31, []*attempt{&note}, "1 (1 lost), apart 0"},
		{"a note that may have been cleared", 31, []*attempt{&note, clear}, "0, apart 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			v := &verdict{c: c, session: test.attempts[0].Session, attempts: soFar(test.attempts, test.moment), again: true}
			v.judge()
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// A turn that stopped another turn, but was not stored when that one loaded, is a failure, unless
// servers have lost it in between.
func TestAttribute_forgottenInTheWay(t *testing.T) {
	for _, test := range []struct {
		name          string
		after, killed int64
		want          string
	}{
		{"nothing forgotten", 0, 0, "1 (1 failure), apart 0"},
		{"forgotten between", 500, 1500, "0, apart 1 (1 lost)"},
		{"forgotten before", 100, 900, "1 (1 failure), apart 0"},
		{"forgotten after", 2500, 3500, "1 (1 failure), apart 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			if test.killed != 0 {
				c.windows.forget(c.windows.open(serverFaults[0], 0, 0), test.after, test.killed)
			}
			c.receive(&said{What: sayWrong, Key: "e0/talk-0", Began: 1000, Got: 2000, Text: "no such turn"})
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
