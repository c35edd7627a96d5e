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
	balancer.Plan
	Chaos  bool
	Server string        // where the locks and the histories are
	TTL    time.Duration // of the lock
	Began  time.Time
	Runs   [3]*Result
}

// Title names the conversations and the instances.
func (c *Comparison) Title() string {
	return fmt.Sprintf("conversations: %d, messages in each: %d, instances: %d", c.Sessions, c.Turns, c.Instances)
}

// Kind is a kind of damage.
type Kind struct {
	conversation.Kind
	Meaning string
}

// Kinds are all kinds of damage.
var Kinds = []Kind{
	{conversation.Lost, "question or answer is not stored"},
	{conversation.Torn, "answer not right after its question"},
	{conversation.Stale, "answered from an outdated history"},
	{conversation.Doubled, "delivered twice, answered twice"},
	{conversation.OutOfOrder, "before an earlier message"},
}

// Row is a row of the table.
type Row struct {
	Name, Meaning string // the meaning may be missing
	Cells         [3]string
	Damage        bool // the cells count damage
}

// none is the cell of a run to which a row does not apply.
const none = "–"

// Table is the rows of the table, in groups.
func (c *Comparison) Table() (groups [3][]Row) {
	add := func(group int, name, meaning string, text func(*Result) any) {
		r := Row{Name: name, Meaning: meaning}
		for i, run := range c.Runs {
			r.Cells[i] = fmt.Sprint(text(run))
		}
		groups[group] = append(groups[group], r)
	}
	add(0, "messages of users", "", func(run *Result) any { return run.Messages })
	for i, kind := range Kinds {
		add(0, string(kind.Kind), kind.Meaning, func(run *Result) any { return run.Count(kind.Kind) })
		groups[0][i+1].Damage = true
	}
	if c.Chaos {
		add(1, "instances killed", "in the middle of a turn", func(run *Result) any { return run.Kills })
		add(1, "instances paused", fmt.Sprintf("%s, lock lasts %s", seconds(c.Pause), seconds(c.TTL)), func(run *Result) any { return run.Pauses })
		add(1, "delivered again", "turn cut off, or failed", func(run *Result) any { return run.Again })
	}
	add(1, "stale writes refused", "token was outdated", func(run *Result) any {
		if run.Locked != WholeTurn {
			return none // a list refuses no write
		}
		return run.refused()
	})
	wait := func(percent int) func(*Result) any {
		return func(run *Result) any {
			waits := run.waits()
			if len(waits) == 0 {
				return none
			}
			return Milliseconds(waits[(len(waits)-1)*percent/100])
		}
	}
	add(2, "wait for the lock, median", "", wait(50))
	add(2, "wait for the lock, longest", "", wait(100))
	add(2, "time for all messages", "", func(run *Result) any { return seconds(run.Took) })
	return groups
}

// Err is an error if the lock around the whole turn broke its promise.
func (c *Comparison) Err() error {
	last := c.Runs[2]
	for session, report := range last.Reports {
		if len(report) > 0 {
			return fmt.Errorf("the lock broke its promise: %d of %d messages went wrong under it. "+
				"In conversation %d, %s", last.Count(), last.Messages, session, report[0])
		}
	}
	return nil
}

// Milliseconds writes a duration as in "12.3 ms".
func Milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
