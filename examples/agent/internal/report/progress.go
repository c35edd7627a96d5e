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

// Progress shows on stderr that a run has begun and, on a terminal, how much of it is done. With
// chaos, the line has room for what happens to instances. Call the returned function for each
// event; done marks the end of a turn whose message has its answer.
func Progress(steps int, locked Locked, chaos bool) func(done bool, tally balancer.Tally) {
	title, width, bars := locked.Name(), 10, 42
	if chaos {
		width, bars = 30, 25
	}
	if !term.IsTerminal(int(os.Stderr.Fd())) {
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
