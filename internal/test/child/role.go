package child

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// variable names the role of a child in its environment.
const variable = "BELUGALOCK_CHILD_ROLE"

// Work is what a child does. Its ctx ends when the parent has ended, or no longer needs the child.
type Work func(ctx context.Context, parent *Line) error

// Role is Work that receives the config given to [StartRole].
func Role[C any](work func(ctx context.Context, parent *Line, config C) error) Work {
	return func(ctx context.Context, parent *Line) error {
		var config C
		if err := parent.Receive(&config); err != nil {
			return err
		}
		return work(ctx, parent, config)
	}
}

// Serve does nothing in a process that a user has started. In a child Serve does the work of its
// role and ends the process. If the work fails, Serve prints the error to stderr, and the exit code
// is 1.
func Serve(roles map[string]Work) {
	role, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	// Ctrl-C in a terminal reaches every process. The parent decides whether its children stop.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	in, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, os.Stdin) // until Stop, or the end of the parent
		cancel()
		feed.CloseWithError(err)
	}()
	err := fmt.Errorf("no role is called %q", role)
	if work, ok := roles[role]; ok {
		err = work(ctx, newLine(in, os.Stdout))
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Line is one end of the connection of a child and its parent. Several goroutines may send at a
// time. One may receive.
type Line struct {
	in  *json.Decoder
	mu  sync.Mutex
	out *json.Encoder
}

func newLine(in io.Reader, out io.Writer) *Line {
	return &Line{in: json.NewDecoder(in), out: json.NewEncoder(out)}
}

// Send sends a value. A nil error does not say that the other process has received the value.
func (l *Line) Send(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Encode(v)
}

// Receive waits for the next value and stores it in v. The error is io.EOF after the last value.
func (l *Line) Receive(v any) error { return l.in.Decode(v) }
