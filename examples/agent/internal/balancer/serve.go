package balancer

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
// instance's number, from 1, the config that Run was given, and its deliveries, and ends the process:
// with exit code 1 and a text on stderr if work failed. The channel is closed when there will be no
// more deliveries. The context of work ends when the program that started the instance has ended, or
// does not need the instance any more.
func Serve[C any](work func(ctx context.Context, number int, cfg C, deliveries <-chan Delivery) error) {
	number, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		return
	}
	// Ctrl-C in a terminal may reach every process. Whether an instance should stop is for the
	// program to say.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	deliveries := make(chan Delivery, 1)
	orders := json.NewDecoder(os.Stdin)
	var cfg C
	err = orders.Decode(&cfg)
	go func() {
		defer cancel() // the program has ended, however it did
		if receive(orders, deliveries) {
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
	}()
	if err == nil {
		err = work(ctx, number, cfg, deliveries)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "instance-%d: %v\n", number, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// receive passes deliveries on, and reports whether the instance was dismissed.
func receive(orders *json.Decoder, deliveries chan<- Delivery) bool {
	defer close(deliveries)
	for {
		var d *Delivery
		if err := orders.Decode(&d); err != nil || d == nil {
			return err == nil
		}
		deliveries <- *d
	}
}
