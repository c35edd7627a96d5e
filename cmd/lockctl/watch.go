package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// watchEvery is the time between two readings of watch.
	watchEvery = 500 * time.Millisecond
	// watchLimit is how many locks a reading has at most.
	watchLimit = 1000
)

func (t *tool) watchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Show a live table of the locks until ctrl-C",
		Long: "Show a live table of the locks, the longest held first, until ctrl-C.\n" +
			"With -o json, each reading is one line.\n" +
			fmt.Sprintf("A reading has at most %d locks.", watchLimit),
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			return t.follow(cmd.Context(), func() (picture, error) {
				locks, more, err := s.locks(cmd.Context(), watchLimit)
				order(locks, true)
				return picture{locks, more, time.Now()}, err
			}, t.draw)
		},
	}
}

// patience is how long a reading takes until the service counts as silent. With the pause of watch, that is
// within a second after the last answer.
const patience = 400 * time.Millisecond

// follow reads now and after each pause, and draws each reading. If a reading gets no answer, it draws
// the last one again in a terminal. Elsewhere, one line names the outage. The end of ctx is no error.
// If the service answered before, an outage ends nothing: the operator waits for its end.
func (t *tool) follow(ctx context.Context, read func() (picture, error), draw func(p picture, silence string) error) error {
	type reading struct {
		picture picture
		err     error
	}
	readings, reads := make(chan reading, 1), false
	var last picture
	begin := func() {
		reads = true
		go func() {
			p, err := read()
			readings <- reading{p, err}
		}()
	}
	since, answered, told := time.Now(), false, false
	var failed error
	silent := func() error {
		silence := "no answer since " + since.Format(time.TimeOnly)
		if failed != nil {
			silence += ": " + strings.TrimPrefix(packages.ReplaceAllString(failed.Error(), ""), noAnswer)
		}
		if width, _ := t.size(); width > 0 && t.output != "json" {
			return draw(last, silence)
		}
		if !told {
			t.say("%s", silence)
		}
		told = true
		return nil
	}
	begin()
	for timer := time.NewTimer(patience); ; {
		select {
		case <-ctx.Done():
			if reads {
				<-readings
			}
			return nil
		case r := <-readings:
			reads = false
			var err error
			switch {
			case ctx.Err() != nil:
				return nil
			case r.err == nil:
				since, answered, told, failed = time.Now(), true, false, nil
				last = r.picture
				err = draw(last, "")
			case !answered || exitCode(r.err) != exitUnavailable:
				return r.err
			default:
				failed = r.err
				err = silent()
			}
			if err != nil {
				return err
			}
			timer.Reset(watchEvery)
		case <-timer.C:
			if !reads {
				begin()
			} else if err := silent(); err != nil {
				return err
			}
			timer.Reset(patience)
		}
	}
}

// picture is one reading.
type picture struct {
	locks []lock
	more  bool
	at    time.Time
}

// draw draws a reading over the one before. After a silence, its rows look old: they are faint.
func (t *tool) draw(p picture, silence string) error {
	if t.output == "json" {
		return json.NewEncoder(t.out).Encode(map[string]any{
			"at": p.at.UTC().Format(time.RFC3339Nano), "locks": orEmpty(p.locks), "more": p.more,
		})
	}
	all := fmt.Sprint(len(p.locks))
	if p.more {
		all += " or more"
	}
	shown := p.locks
	width, height := t.size()
	if room := height - 4; room > 0 && len(shown) > room {
		shown = shown[:room]
	}
	head := fmt.Sprintf("%s  locks: %s, shown: %d  (ctrl-C ends)\n", time.Now().Format(time.TimeOnly), all, len(shown))
	table := t.lockTable(shown) + "\n"
	if silence != "" {
		head += shorten(clean(silence), width)
		table = "\x1b[2m" + strings.ReplaceAll(table, "\n", "\x1b[0m\n\x1b[2m") + "\x1b[0m"
	}
	text := head + "\n" + table
	if width > 0 {
		// To the top left; each line is cleared to its end, and the screen below the last.
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	}
	_, err := io.WriteString(t.out, text)
	return err
}
