package report

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
)

var theme = progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "│", BarEnd: "│"}

// Progress shows on stderr that a run has begun and, on a terminal, how much of it is done; chaos says that the run with the lock is
// one with chaos. The function that it returns is called whenever something has happened; done says that it was the end of a turn
// that was dealt with.
func Progress(steps int, locked, chaos bool) func(done bool, tally balancer.Tally) {
	title, width, bars := "without lock", 12, 40
	if locked {
		title = "with lock"
	}
	if chaos {
		width, bars = 29, 26
	}
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		if locked && chaos {
			title += ", chaos"
		}
		fmt.Fprintf(os.Stderr, "%s: %d messages\n", title, steps)
		return func(bool, balancer.Tally) {}
	}
	bar := progressbar.NewOptions(steps, progressbar.OptionSetDescription(fmt.Sprintf("%-*s", width, title)), progressbar.OptionShowCount(),
		progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(bars), progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionSetTheme(theme), progressbar.OptionSetPredictTime(false),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(os.Stderr) }))
	var before balancer.Tally
	return func(done bool, tally balancer.Tally) {
		if tally.Kills+tally.Pauses > before.Kills+before.Pauses {
			before = tally
			bar.Describe(fmt.Sprintf("%-*s", width, fmt.Sprintf("%s, %d killed, %d paused", title, tally.Kills, tally.Pauses)))
		}
		if done {
			_ = bar.Add(1)
		}
	}
}
