package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

// The parts of the picture of times from top to bottom, in CSS pixels.
const (
	timesHead = 26 // the label of the line
	timesRow  = 46
	timesTall = 14
)

// times is a picture of how long each run took, with a line at the least time that its turns need
// one after another.
type times struct {
	Bars         []timesBar
	Least        string
	LeastX       share
	Ticks        []tick
	Height, Foot int
	Ratio        string // the measured time of the last run, in least times
	Overlap      bool   // a run took less
	Story        string
}

type timesBar struct {
	Name, Took string
	Width      share
	Text, Top  int
}

// Height is that of the bar.
func (timesBar) Height() int { return timesTall }

func timesOf(c *report.Comparison) *times {
	least := c.WholeTurn.Serial()
	if least == 0 {
		return nil
	}
	longest := least
	for _, r := range c.Runs() {
		longest = max(longest, r.Took)
	}
	place := func(d time.Duration) share { return share(d) / share(longest) }
	t := &times{Least: seconds(least), LeastX: place(least), Ticks: ticks(longest, pieces), Ratio: fmt.Sprintf("%.2f", float64(c.WholeTurn.Took)/float64(least))}
	var story []string
	y := timesHead
	for _, r := range c.Runs() {
		b := timesBar{Name: r.Locked.Name(), Took: seconds(r.Took), Width: place(r.Took), Text: y + 15, Top: y + 22}
		t.Bars = append(t.Bars, b)
		t.Overlap = t.Overlap || r.Took < least
		story = append(story, fmt.Sprintf("%s: %s", b.Name, b.Took))
		y += timesRow
	}
	t.Foot = y
	t.Height = y + axisFoot
	t.Story = fmt.Sprintf("Time for all messages: %s. The ideal time, with one turn after another, is %s.",
		strings.Join(story, "; "), t.Least)
	return t
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
