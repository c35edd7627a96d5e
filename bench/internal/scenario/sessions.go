package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
)

// sample runs the measured work a few times, and appends each time.
type sample func(ctx context.Context, times []time.Duration) ([]time.Duration, error)

// alternate lets samples take turns for the time of the window, and returns the median of each. The
// n-th round begins with the n-th sample.
func alternate(ctx context.Context, n int, window time.Duration, samples ...sample) ([]time.Duration, error) {
	runtime.GC() // no sample pays for earlier garbage
	taken := make([][]time.Duration, len(samples))
	for sweep, end := 0, time.Now().Add(window); sweep == 0 || time.Now().Before(end); sweep++ {
		for i := range samples {
			i = (i + n + sweep) % len(samples)
			var err error
			if taken[i], err = samples[i](ctx, taken[i]); err != nil {
				return nil, err
			}
		}
	}
	medians := make([]time.Duration, len(samples))
	for i, times := range taken {
		medians[i] = stats.Quantile(times, 0.5)
	}
	return medians, nil
}

const (
	questionSize = 200 // bytes, as JSON
	answerSize   = 300
	// before is the number of Saves in a turn before the measured ones. The first of them shows the
	// store the token.
	before = 10
	// together is the number of Loads before the next subject.
	together = 4
)

// exchange returns the n-th question and answer of a session.
func exchange(n int) (question, answer subject.Message) {
	return exchangeOf(n, questionSize, answerSize)
}

// exchangeOf is exchange with messages of these sizes, as JSON.
func exchangeOf(n, questionSize, answerSize int) (question, answer subject.Message) {
	say := func(role, words string, size int) subject.Message {
		words = strconv.Itoa(n) + ": " + words // scripts keep equal texts once, so no two are equal
		size -= len(`{"role":"","text":""}`) + len(role)
		return subject.Message{Role: role, Text: strings.Repeat(words, size/len(words)+1)[:size]}
	}
	return say("user", "Where is the parcel that I ordered last week, and can it still be sent to my office? ", questionSize),
		say("assistant", "It has left our depot and comes on Tuesday between nine and eleven. I have told the carrier your new address. ", answerSize)
}

// session is one with the number of exchanges it was given.
type session struct {
	subject.Session
	n     int
	named bool // its Saves have IDs
	large bool // its exchanges have 4 KB
}

// once is a session that knows IDs.
type once interface {
	SaveOnce(ctx context.Context, id string, messages ...subject.Message) error
}

func (s *session) exchange(n int) (question, answer subject.Message) {
	if s.large {
		return exchangeOf(n, 1024, 3072)
	}
	return exchange(n)
}

// saves makes Saves.
func (s *session) saves(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
	for range block {
		question, answer := s.exchange(s.n)
		id := "message-" + strconv.Itoa(s.n)
		began := time.Now()
		save := func() error { return s.Save(ctx, question, answer) }
		if s.named {
			save = func() error { return s.Session.(once).SaveOnce(ctx, id, question, answer) }
		}
		if err := save(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
		s.n++
	}
	return times, nil
}

// save makes Saves outside the measurement.
func (s *session) save(ctx context.Context, count int) error {
	for range count {
		question, answer := s.exchange(s.n)
		if err := s.Save(ctx, question, answer); err != nil {
			return err
		}
		s.n++
	}
	return nil
}

// savesInTurn makes Saves in the course of a turn.
func (s *session) savesInTurn(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
	err := s.turn(ctx, func(ctx context.Context) (err error) {
		times, err = s.saves(ctx, times)
		return err
	})
	return times, err
}

// savesAfterTurn makes Saves outside a turn, soon after one.
func (s *session) savesAfterTurn(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
	if err := s.turn(ctx, func(context.Context) error { return nil }); err != nil {
		return nil, err
	}
	return s.saves(ctx, times)
}

// turn runs a turn that makes some Saves and then calls fn.
func (s *session) turn(ctx context.Context, fn func(context.Context) error) error {
	taker, ok := s.Session.(subject.TurnTaker)
	if !ok {
		return errors.New("the session knows no turns")
	}
	return taker.Turn(ctx, func(ctx context.Context) error {
		if err := s.save(ctx, before); err != nil {
			return err
		}
		return fn(ctx)
	})
}

// loads makes Loads.
func (s *session) loads(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
	for range together {
		began := time.Now()
		messages, err := s.Load(ctx, "")
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
		if err := s.checkThat(messages); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// check looks whether the session has what it was given.
func (s *session) check(ctx context.Context) error {
	messages, err := s.Load(ctx, "")
	if err != nil {
		return fmt.Errorf("reading the saved messages: %w", err)
	}
	return s.checkThat(messages)
}

func (s *session) checkThat(messages []subject.Message) error {
	if len(messages) != 2*s.n {
		return fmt.Errorf("%d Saves were made, and %d messages are there", s.n, len(messages))
	}
	question, answer := s.exchange(s.n - 1)
	if messages[2*s.n-2] != question || messages[2*s.n-1] != answer {
		return fmt.Errorf("the last of %d Saves has left other messages: %v", s.n, messages[2*s.n-2:])
	}
	return nil
}
