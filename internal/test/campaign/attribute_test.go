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
