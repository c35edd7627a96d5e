package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/test/child"
)

const processes = 4

// contest measures a lock that processes compete for: 4 with some goroutines each, all of which
// want one key, and hold it for a time of sleep. The ideal is one goroutine that only sleeps, as if
// a handoff cost nothing. Every round measures it, half before this library and half after. Its
// waits are those of goroutines that all take turns at that pace.
func contest(goroutines int, hold time.Duration, names ...string) func(context.Context, *Bench) (*Outcome, error) {
	return func(ctx context.Context, b *Bench) (*Outcome, error) {
		around := append([]string{subject.Ideal, names[0], subject.Ideal}, names[1:]...)
		rate, p99 := Figures{}, Figures{}
		waits := map[string][]time.Duration{}
		for n := range b.pace.N {
			ideal := 0.0
			for _, s := range b.round(n, around) {
				perSecond, waited, err := b.contend(ctx, s, goroutines, hold)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s, err)
				}
				if s == subject.Ideal {
					ideal += perSecond / 2
					continue
				}
				rate.add(s, perSecond)
				p99.add(s, micros(quantile(waited, 0.99))/1000)
				waits[s] = append(waits[s], waited...)
			}
			rate.add(subject.Ideal, ideal)
			p99.add(subject.Ideal, float64(processes*goroutines)/ideal*1000) // ms
		}
		return &Outcome{Subjects: append(slices.Clone(names), subject.Ideal), Waits: waits, Columns: []Column{
			{"per_s", "acquisitions/s", rate}, {"p99_wait_ms", "p99 wait ms", p99},
		}}, nil
	}
}

// contend runs the processes of one subject on one key. It returns the acquisitions per second of
// all their goroutines, and the waits.
func (b *Bench) contend(ctx context.Context, name string, goroutines int, hold time.Duration,
) (perSecond float64, waits []time.Duration, err error) {
	task := crowdTask{Subject: name, Addr: b.addr(name), Key: b.key(), Goroutines: goroutines, Hold: hold}
	n, length := processes, b.pace.Window
	if name == subject.Ideal {
		n, task.Goroutines = 1, 1
		length /= 2 // it has two turns
	}
	var members []*child.Child
	defer func() {
		for _, m := range members {
			m.Stop() // all can end at once
		}
		for _, m := range members {
			err = errors.Join(err, m.Close())
		}
	}()
	for range n {
		m, err := child.StartRole(ctx, crowdRole, task, os.Stderr)
		if err != nil {
			return 0, nil, err
		}
		members = append(members, m)
	}
	for _, m := range members { // all are ready
		if err := m.Receive(new(bool)); err != nil {
			return 0, nil, err
		}
	}
	from := time.Now().Add(b.pace.Settle)
	window := crowdWindow{From: from, To: from.Add(length)}
	for _, m := range members {
		if err := m.Send(window); err != nil {
			return 0, nil, err
		}
	}
	var all []crowdMember
	for _, m := range members {
		var some []crowdMember
		if err := m.Receive(&some); err != nil {
			return 0, nil, err
		}
		all = append(all, some...)
	}
	perSecond, waits = sumUp(all, length)
	return perSecond, waits, nil
}

func sumUp(members []crowdMember, window time.Duration) (perSecond float64, waits []time.Duration) {
	for _, m := range members {
		perSecond += float64(len(m.Waits)) / window.Seconds()
		waits = append(waits, m.Waits...)
		if m.Unfinished > 0 {
			waits = append(waits, m.Unfinished)
		}
	}
	return perSecond, waits
}
