package report

import (
	"fmt"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/internal/integrity"
)

// Comparison is a run without and one with the lock.
type Comparison struct {
	Instances, Sessions, Turns int
	Locks, Histories           string         // where they were
	Servers                    string         // the flags that name the servers, without the URLs
	Chaos                      balancer.Chaos // of the run with the lock; the other one is left alone
	TTL                        time.Duration  // of the lock
	Began                      time.Time
	Without, With              *Result
}

// Title says what was run.
func (c *Comparison) Title() string {
	return fmt.Sprintf("%d conversations of %d messages, answered by %d instances", c.Sessions, c.Turns, c.Instances)
}

// Row is a row of the table.
type Row struct {
	Name, Meaning string // the meaning may be missing
	Without, With string
	// What counts what went wrong, and is above 0: in the run without, and in the run with the lock.
	DamageWithout, DamageWith bool
}

// String is what the row is about.
func (r Row) String() string {
	if r.Meaning == "" {
		return r.Name
	}
	return r.Name + ": " + r.Meaning
}

// Damage are the rows about what went wrong.
func (c *Comparison) Damage() (rows []Row) {
	for _, d := range []struct {
		kind    integrity.Kind
		meaning string
	}{
		{integrity.Lost, "question or answer is not stored"},
		{integrity.Torn, "the answer does not follow its question at once"},
		{integrity.Stale, "answered without seeing all that stands before"},
		{integrity.Doubled, "delivered twice, and answered twice"},
		{integrity.OutOfOrder, "stands before an earlier one of its instance"},
	} {
		without, with := c.Without.Count(d.kind), c.With.Count(d.kind)
		rows = append(rows, Row{string(d.kind), d.meaning, fmt.Sprint(without), fmt.Sprint(with), without > 0, with > 0})
	}
	return rows
}

// Messages is the row that says how many there were.
func (c *Comparison) Messages() Row {
	return Row{Name: "messages of users", Without: fmt.Sprint(c.Without.Messages), With: fmt.Sprint(c.With.Messages)}
}

// Columns are the names of the two runs.
func (c *Comparison) Columns() (without, with string) {
	if c.Chaos.Strikes > 0 {
		return "without lock", "with lock, chaos"
	}
	return "without lock", "with lock"
}

// Events are the rows about what happened besides.
func (c *Comparison) Events() (rows []Row) {
	if c.Chaos.Strikes > 0 {
		rows = []Row{
			{Name: "instances killed", Meaning: "in the middle of a turn", With: fmt.Sprint(c.With.Tally.Kills)},
			{Name: "instances paused", Meaning: fmt.Sprintf("for %s, the lock lasts %s", seconds(c.Chaos.Pause), seconds(c.TTL)), With: fmt.Sprint(c.With.Tally.Pauses)},
			{Name: "messages delivered again", Meaning: "their turn was cut off, or failed", With: fmt.Sprint(c.With.Tally.Again)},
		}
	}
	if n := c.With.Tally.Nodes; n > 0 {
		rows = append(rows, Row{Name: "lock nodes killed", Meaning: "and not started again", With: fmt.Sprint(n)})
	}
	rows = append(rows, Row{Name: "stale writes refused", Meaning: "the store knew a later holder", With: fmt.Sprint(c.With.Refused())})
	for i := range rows {
		rows[i].Without = "none"
	}
	return rows
}

// Times are the rows about how long it took.
func (c *Comparison) Times() (rows []Row) {
	if waits := c.With.Waits(); len(waits) > 0 {
		rows = append(rows, Row{Name: "wait for the lock, median", Without: "none", With: Milliseconds(Percentile(waits, 50))},
			Row{Name: "wait for the lock, longest", Without: "none", With: Milliseconds(Percentile(waits, 100))})
	}
	return append(rows, Row{Name: "time for all messages", Without: seconds(c.Without.Took), With: seconds(c.With.Took)})
}

// WithoutLock says what the run without the lock shows.
func (c *Comparison) WithoutLock() string {
	calm := ""
	if c.Chaos.Strikes > 0 {
		calm = " No instance was killed or paused in that run."
	}
	damaged := c.Without.Count()
	if damaged == 0 {
		return "Without the lock nothing went wrong this time: the instances hardly met. Try more of them, or fewer conversations." + calm
	}
	return fmt.Sprintf("Without the lock %d of %d messages went wrong: instances loaded the same history, answered without knowing of "+
		"each other, and wrote between each other's messages.", damaged, c.Without.Messages) + calm
}

// WithLock says what the run with the lock shows, if that was as it should be.
func (c *Comparison) WithLock() string {
	return "With it every turn (load, model, save) had its conversation to itself: each answer follows its question and saw all " +
		"that stands before. A lock around save alone would not prevent stale answers. By its turn ID the store knew a message " +
		"that was delivered twice."
}

// UnderChaos says what chaos adds to that. It is empty if there was none.
func (c *Comparison) UnderChaos() string {
	if c.Chaos.Strikes == 0 {
		return ""
	}
	node := ""
	if c.With.Tally.Nodes > 0 {
		node = " A node of the lock was killed, too. The others are a quorum, and the lock went on."
	}
	return fmt.Sprintf("That holds although %d instances were killed and %d paused in the middle of a turn, for so long that their lock expired. "+
		"What a paused one still had on its way, the store refused if another one had been there meanwhile. Every message was delivered "+
		"until an instance had dealt with it.", c.With.Tally.Kills, c.With.Tally.Pauses) + node
}

// Err is an error if the lock broke its promise.
func (c *Comparison) Err() error {
	if damaged := c.With.Count(); damaged > 0 {
		return fmt.Errorf("the lock broke its promise: %d of %d messages went wrong under it", damaged, c.With.Messages)
	}
	return nil
}

// Percentile returns the wait that p percent of all do not exceed. The waits are sorted, and there is one at least.
func Percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// Milliseconds writes a duration as in "12.3 ms".
func Milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
