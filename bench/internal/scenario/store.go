package scenario

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

const (
	loadTurns = 1000
	// before is the number of Saves in a turn before the measured ones. The first of them shows the
	// store the token.
	before = 10
	// together is the number of Loads before the next subject.
	together = 4
)

// store measures a Save of 0.5 KB against an XADD of the same bytes, and a Load of 1,000 turns
// against an LRANGE of as many. Both sides use JSON, and take turns. Outside the times, it checks
// that all saved messages can be read.
func store(ctx context.Context, b *Bench) (*Outcome, error) {
	ours, stream, list := subject.Ours, subject.Stream, subject.List
	names := []string{ours, stream, list}
	ways, setup, err := openAll(b, subject.Ways, names...)
	defer setup.Close()
	if err != nil {
		return nil, err
	}
	toLoad, err := b.sessions(200, 300, ways[ours], ways[list])
	if err != nil {
		return nil, err
	}
	for _, s := range toLoad {
		if _, err := s.save(ctx, loadTurns, nil); err != nil {
			return nil, err
		}
	}
	save, turnSave, idSave, load := Figures{}, Figures{}, Figures{}, Figures{}
	for n := range b.pace.N {
		b.round(n, names)
		s, err := b.sessions(200, 300, ways[ours], ways[ours], ways[ours], ways[stream])
		if err != nil {
			return nil, err
		}
		s[2].named = true
		saves, err := alternate(ctx, n, b.pace.Window, s[0].saves, s[1].savesInTurn, s[2].savesInTurn, s[3].saves)
		if err != nil {
			return nil, err
		}
		for i, figure := range []Figures{save, turnSave, idSave} {
			figure.add(ours, saves[i])
			figure.add(stream, saves[3])
			if _, err := s[i].loads(ctx, nil); err != nil {
				return nil, err
			}
		}
		loads, err := alternate(ctx, n, b.pace.Window/2, toLoad[0].loads, toLoad[1].loads)
		if err != nil {
			return nil, err
		}
		load.add(ours, loads[0])
		load.add(list, loads[1])
	}
	return &Outcome{Subjects: names, Columns: []Column{
		{"save_us", "Save µs", save}, {"turn_save_us", "in a turn µs", turnSave},
		{"turn_id_save_us", "with a turn ID µs", idSave}, {"load_1000_us", "Load of 1,000 µs", load},
	}}, nil
}

// pgSave compares a Save of 4 KB in a turn with an INSERT of the same bytes.
func pgSave(ctx context.Context, b *Bench) (*Outcome, error) {
	ours, names := subject.OursPostgres, []string{subject.OursPostgres, subject.Insert}
	ways, setup, err := openAll(b, subject.Ways, names...)
	defer setup.Close()
	if err != nil {
		return nil, err
	}
	p50 := Figures{}
	for n := range b.pace.N {
		b.round(n, names)
		s, err := b.sessions(1024, 3072, ways[ours], ways[subject.Insert])
		if err != nil {
			return nil, err
		}
		took, err := alternate(ctx, n, b.pace.Window, s[0].savesInTurn, s[1].saves)
		if err != nil {
			return nil, err
		}
		if _, err := s[0].loads(ctx, nil); err != nil {
			return nil, err
		}
		p50.add(ours, took[0])
		p50.add(subject.Insert, took[1])
	}
	return &Outcome{Subjects: names, Columns: []Column{{"save_4k_us", "Save µs", p50}}}, nil
}

// sample runs the measured work a few times, and appends each time.
type sample func(ctx context.Context, times []time.Duration) ([]time.Duration, error)

// alternate lets samples take turns for the time of the window, and returns the median of each in
// µs. The n-th round begins with the n-th sample.
func alternate(ctx context.Context, n int, window time.Duration, samples ...sample) (medians []float64, err error) {
	runtime.GC() // no sample pays for earlier garbage
	taken := make([][]time.Duration, len(samples))
	for sweep, end := 0, time.Now().Add(window); sweep == 0 || time.Now().Before(end); sweep++ {
		for i := range samples {
			i = (i + n + sweep) % len(samples)
			if taken[i], err = samples[i](ctx, taken[i]); err != nil {
				return nil, err
			}
		}
	}
	for _, times := range taken {
		medians = append(medians, micros(quantile(times, 0.5)))
	}
	return medians, nil
}

// session is one with the number of exchanges it was given.
type session struct {
	subject.Session
	n                        int
	questionSize, answerSize int  // bytes, as JSON
	named                    bool // its Saves have IDs
}

// sessions returns a new session of each of the ways.
func (b *Bench) sessions(questionSize, answerSize int, ways ...subject.Sessions) (sessions []*session, err error) {
	for _, way := range ways {
		s, err := way(b.key())
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, &session{Session: s, questionSize: questionSize, answerSize: answerSize})
	}
	return sessions, nil
}

// exchange returns the n-th question and answer.
func (s *session) exchange(n int) (question, answer subject.Message) {
	say := func(role, words string, size int) subject.Message {
		words = strconv.Itoa(n) + ": " + words // scripts keep equal texts once, so no two are equal
		size -= len(`{"role":"","text":""}`) + len(role)
		return subject.Message{Role: role, Text: strings.Repeat(words, size/len(words)+1)[:size]}
	}
	return say("user", "Where is the parcel that I ordered last week? ", s.questionSize),
		say("assistant", "It has left our depot and comes on Tuesday between nine and eleven. ", s.answerSize)
}

// save makes Saves, and appends their times.
func (s *session) save(ctx context.Context, count int, times []time.Duration) ([]time.Duration, error) {
	for range count {
		question, answer := s.exchange(s.n)
		id := "message-" + strconv.Itoa(s.n)
		began := time.Now()
		save := func() error { return s.Save(ctx, question, answer) }
		if s.named {
			save = func() error { return s.SaveOnce(ctx, id, question, answer) }
		}
		if err := save(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
		s.n++
	}
	return times, nil
}

// saves makes Saves.
func (s *session) saves(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
	return s.save(ctx, block, times)
}

// savesInTurn makes Saves in the course of a turn.
func (s *session) savesInTurn(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
	err := s.Turn(ctx, func(ctx context.Context) (err error) {
		if _, err := s.save(ctx, before, nil); err != nil {
			return err
		}
		times, err = s.saves(ctx, times)
		return err
	})
	return times, err
}

// loads makes Loads, and looks whether the session has what it was given.
func (s *session) loads(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
	for range together {
		began := time.Now()
		messages, err := s.Load(ctx, "")
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
		if len(messages) != 2*s.n {
			return nil, fmt.Errorf("%d Saves were made, and %d messages are there", s.n, len(messages))
		}
		question, answer := s.exchange(s.n - 1)
		if last := messages[2*s.n-2:]; last[0] != question || last[1] != answer {
			return nil, fmt.Errorf("the last of %d Saves has left other messages: %v", s.n, last)
		}
	}
	return times, nil
}
