package report

import (
	"fmt"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/internal/test/conversation"
)

// Comparison is three runs: without a lock, with a lock around Save alone, and with a lock around
// the whole turn.
type Comparison struct {
	Instances, Sessions, Turns  int
	Locks, Histories            string         // where they were
	Servers                     string         // the flags that name the servers, without the URLs
	Chaos                       balancer.Chaos // of each run; a node of the lock is killed in the last one alone
	TTL                         time.Duration  // of the lock
	Began                       time.Time
	NoLock, SaveOnly, WholeTurn *Result
}

// Runs returns the runs in their order.
func (c *Comparison) Runs() []*Result { return []*Result{c.NoLock, c.SaveOnly, c.WholeTurn} }

// Title names the conversations and the instances.
func (c *Comparison) Title() string {
	return fmt.Sprintf("%s of %s, answered by %s",
		counted(c.Sessions, "conversation"), counted(c.Turns, "message"), counted(c.Instances, "instance"))
}

// counted returns a number of things in words.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprint(n, " ", thing, "s")
}

// Row is a row of the table.
type Row struct {
	Name, Meaning string // the meaning may be missing
	Cells         []Cell // one per run
}

// Cell is a value of one run.
type Cell struct {
	Text string
	Bad  bool // the value counts damage, and is above 0
}

// String is the title of the row.
func (r Row) String() string {
	if r.Meaning == "" {
		return r.Name
	}
	return r.Name + ": " + r.Meaning
}

// none is the cell of a run to which a row does not apply.
const none = "–"

// row makes a row from a function that returns the text of a run's cell.
func (c *Comparison) row(name, meaning string, text func(*Result) string) Row {
	r := Row{Name: name, Meaning: meaning}
	for _, run := range c.Runs() {
		r.Cells = append(r.Cells, Cell{Text: text(run)})
	}
	return r
}

// Damage are the rows about messages that went wrong.
func (c *Comparison) Damage() (rows []Row) {
	for _, d := range []struct {
		kind    conversation.Kind
		meaning string
	}{
		{conversation.Lost, "question or answer is not stored"},
		{conversation.Torn, "answer not right after its question"},
		{conversation.Stale, "answered from an outdated history"},
		{conversation.Doubled, "delivered twice, answered twice"},
		{conversation.OutOfOrder, "before an earlier message"},
	} {
		r := c.row(string(d.kind), d.meaning, func(run *Result) string { return fmt.Sprint(run.Count(d.kind)) })
		for i, run := range c.Runs() {
			r.Cells[i].Bad = run.Count(d.kind) > 0
		}
		rows = append(rows, r)
	}
	return rows
}

// Messages is the row with the number of messages.
func (c *Comparison) Messages() Row {
	return c.row("messages of users", "", func(run *Result) string { return fmt.Sprint(run.Messages) })
}

// Events are the rows about other events of the runs.
func (c *Comparison) Events() (rows []Row) {
	if c.Chaos.Strikes > 0 {
		rows = []Row{
			c.row("instances killed", "in the middle of a turn", func(run *Result) string { return fmt.Sprint(run.Tally.Kills) }),
			c.row("instances paused", fmt.Sprintf("%s, lock lasts %s", seconds(c.Chaos.Pause), seconds(c.TTL)),
				func(run *Result) string { return fmt.Sprint(run.Tally.Pauses) }),
			c.row("delivered again", "turn cut off, or failed", func(run *Result) string { return fmt.Sprint(run.Tally.Again) }),
		}
	}
	if c.WholeTurn.Tally.Nodes > 0 {
		rows = append(rows, c.row("lock nodes killed", "and not started again", func(run *Result) string { return fmt.Sprint(run.Tally.Nodes) }))
	}
	return append(rows, c.row("stale writes refused", "token was outdated", func(run *Result) string {
		if run.Locked != WholeTurn {
			return none // a list refuses no write
		}
		return fmt.Sprint(run.Refused())
	}))
}

// Times are the rows about durations.
func (c *Comparison) Times() (rows []Row) {
	wait := func(percent int) func(*Result) string {
		return func(run *Result) string {
			if waits := run.Waits(); len(waits) > 0 {
				return Milliseconds(Percentile(waits, percent))
			}
			return none
		}
	}
	if len(c.WholeTurn.Waits()) > 0 {
		rows = append(rows, c.row("wait for the lock, median", "", wait(50)), c.row("wait for the lock, longest", "", wait(100)))
	}
	return append(rows, c.row("time for all messages", "", func(run *Result) string { return seconds(run.Took) }),
		c.row("the least time", "turns in a row, no waits", func(run *Result) string {
			if run.Locked != WholeTurn {
				return none // its turns overlap
			}
			return seconds(run.Serial())
		}))
}

// Err is an error if the lock around the whole turn broke its promise.
func (c *Comparison) Err() error {
	if damaged := c.WholeTurn.Count(); damaged > 0 {
		return fmt.Errorf("the lock broke its promise: %d of %d messages went wrong under it", damaged, c.WholeTurn.Messages)
	}
	return nil
}

// Percentile returns the wait that p percent of all do not exceed. The waits are sorted, and there
// is one at least.
func Percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// Milliseconds writes a duration as in "12.3 ms".
func Milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
