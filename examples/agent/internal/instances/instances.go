// Package instances runs instances of a program as processes: the program starts itself again.
package instances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// variable is the number of an instance, in its environment.
const variable = "BELUGALOCK_EXAMPLE_INSTANCE"

// grace is how long an instance that is told to stop may take.
const grace = 3 * time.Second

// Serve does nothing in the process that a user has started. In an instance it runs work, with the instance's number, from
// 1, and the config that Run was given, and ends the process: with exit code 1 and a text on stderr if work failed. The
// context of work ends when the program that started the instance has ended, or does not need the instance any more.
func Serve[C any](work func(ctx context.Context, number int, cfg C) error) {
	number, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		return
	}
	// Ctrl-C in a terminal reaches every process. Whether an instance should stop is for the program to say.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	var cfg C
	err = json.NewDecoder(os.Stdin).Decode(&cfg)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the program does, however that ends
		cancel()
	}()
	if err == nil {
		err = work(ctx, number, cfg)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "instance-%d: %v\n", number, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run starts n instances with cfg, and returns when all have ended. It calls line for every JSON value that one of them
// has written to stdout, by one goroutine at a time. The first instance that fails ends the others, as ctx does; what has
// not ended three seconds later is killed.
func Run[C, L any](ctx context.Context, n int, cfg C, line func(L)) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			err := start(ctx, i+1, cfg, func(l L) {
				mu.Lock()
				defer mu.Unlock()
				line(l)
			})
			if err != nil {
				cancel(fmt.Errorf("instance-%d: %w", i+1, err))
			}
		})
	}
	all.Wait()
	if outer.Err() != nil {
		return errors.New("interrupted")
	}
	return context.Cause(ctx)
}

// start runs one instance to its end.
func start[C, L any](ctx context.Context, number int, cfg C, line func(L)) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(number))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = grace
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = json.NewEncoder(stdin).Encode(cfg) // should it have ended already, Wait says why
	for lines := json.NewDecoder(stdout); ; {
		var l L
		if err := lines.Decode(&l); err != nil {
			return wait(cmd, err)
		}
		line(l)
	}
}

// wait returns how an instance ended, after its lines have.
func wait(cmd *exec.Cmd, lines error) error {
	err := cmd.Wait()
	if err == nil && lines != io.EOF {
		return fmt.Errorf("its lines make no sense: %w", lines)
	}
	return err
}
