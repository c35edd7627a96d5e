package report

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

var theme = progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "│", BarEnd: "│"}

// Progress shows on stderr that work has begun and, on a terminal, how much of it is done. The function that it returns is
// called for each step.
func Progress(title string, steps int) (step func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		fmt.Fprintf(os.Stderr, "%s: %d messages\n", title, steps)
		return func() {}
	}
	bar := progressbar.NewOptions(steps, progressbar.OptionSetDescription(fmt.Sprintf("%-12s", title)), progressbar.OptionShowCount(),
		progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(40), progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionSetTheme(theme), progressbar.OptionSetPredictTime(false),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(os.Stderr) }))
	return func() { _ = bar.Add(1) }
}
