package instances

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// Serve does nothing in the process that a user has started. In an instance it runs work, with the
// instance's number, from 1, the config that Run was given, and the tasks, and ends the process:
// with exit code 1 and a text on stderr if work failed. The channel is closed when there will be no
// more tasks. The context of work ends when the program that started the instance has ended, or
// does not need the instance any more.
func Serve[C, T any](work func(ctx context.Context, number int, cfg C, tasks <-chan T) error) {
	number, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		return
	}
	// Ctrl-C in a terminal may reach every process. Whether an instance should stop is for the
	// program to say.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	tasks := make(chan T, 1)
	orders := json.NewDecoder(os.Stdin)
	var cfg C
	err = orders.Decode(&cfg)
	go func() {
		defer cancel() // the program has ended, however it did
		if receive(orders, tasks) {
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
	}()
	if err == nil {
		err = work(ctx, number, cfg, tasks)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "instance-%d: %v\n", number, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// receive passes tasks on, and reports whether the instance was dismissed.
func receive[T any](orders *json.Decoder, tasks chan<- T) bool {
	defer close(tasks)
	for {
		var task *T
		if err := orders.Decode(&task); err != nil || task == nil {
			return err == nil
		}
		tasks <- *task
	}
}
