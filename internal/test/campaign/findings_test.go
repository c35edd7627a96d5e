package campaign

import (
	"fmt"
	"slices"
	"time"
)

// finding is one thing that is wrong. Whether it lies in the window of a fault that may cause it is
// known when the run is over: some faults are noticed late.
type finding struct {
	kind  string // S1, S2, fence, N, O, L, lost, stale, failure
	key   string
	at    int64
	run   int   // the run whose windows count, with the windows of all runs
	until int64 // it was so from at until then; 0: at is all there is
	fault *fault
	text  string
	never bool // no fault may cause it
	// starved is an N for which the process was not let run for as long as it was late.
	starved bool
	// The finding is void if the servers have lost the data of these times. With 0, such a loss
	// does not matter.
	asked, answered int64
}

func (f *finding) String() string { return f.kind + ": " + f.text }

// most is how many findings are kept.
const most = 20_000

func (c *campaign) blame(f *finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.findings) < most {
		c.findings = append(c.findings, f)
	}
}

// excusable are the kinds of which a fault may be an excuse. No other kind has one.
var excusable = []string{"S1", "N"}

// attribute parts the findings in those that a fault may cause, which are counted, and the others.
func (c *campaign) attribute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.findings {
		if f.answered != 0 {
			if forgot := c.windows.forgot(f.key, position{}, f.asked, f.answered); forgot != nil {
				c.stat(forgot).apart["lost"]++
				continue
			}
		}
		cause := f.fault
		if slices.Contains(excusable, f.kind) && !f.never {
			if cause == nil {
				cause = c.windows.broken(f.at, max(f.at, f.until), f.key, f.run)
			}
			if cause != nil && cause.breaks {
				c.stat(cause).apart[f.kind]++
				continue
			}
		}
		if f.starved {
			c.starved++
			continue
		}
		f.text += fmt.Sprintf(" [%s after the start]", time.Duration(f.at-c.start).Round(time.Millisecond))
		if near := c.windows.others(nil, f.at, f.at); near != nil {
			f.text += " while " + near.name
		}
		c.wrong = append(c.wrong, f)
	}
	c.findings = nil
}
