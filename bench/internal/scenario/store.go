package scenario

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

const (
	loadTurns = 1000
	longTurns = 100_000
)

// store measures the cost of the session store of this library: a Save against an XADD of the same
// bytes, a Load of 1,000 turns against an LRANGE of as many, and a Save to a session of 100,000
// turns against one to a session of ten. Both sides write and read messages as JSON, and take
// turns. In a round, each of the three comparisons has the window, the Loads half of it. Outside
// the times, it checks that all saved messages can be read.
func (b *Bench) store(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.Store, []string{subject.Ours, subject.BsmStream, subject.Stream, subject.List}
	ways, closeAll, err := openAll(b, names, subject.OpenSessions)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	toLoad, err := b.filled(ctx, ways, subject.Ours, subject.List)
	if err != nil {
		return nil, err
	}
	long, err := b.long(ctx, ways[subject.Ours])
	if err != nil {
		return nil, err
	}

	f := storeFigures{figures{}, figures{}, figures{}, figures{}, figures{}, figures{}, figures{}, figures{}}
	for n := range pace.N {
		b.round("store", n, pace.N, names)
		if err := b.timeSaves(ctx, n, ways, f); err != nil {
			return nil, err
		}
		if err := b.timeLoads(ctx, n, toLoad, f); err != nil {
			return nil, err
		}
		if err := b.timeAppends(ctx, n, ways[subject.Ours], long, f); err != nil {
			return nil, err
		}
	}
	if err := long.check(ctx); err != nil {
		return nil, err
	}
	return &Outcome{
		Title:  "a Save of 0.5 KB, a Load of 1,000 turns, a Save to 10 and to 100,000 turns",
		Rounds: pace.N,
		Rows: rows(names,
			column{"save_us", "Save µs", f.save},
			column{"turn_save_us", "in a turn µs", f.turnSave},
			column{"turn_id_save_us", "with a turn ID µs", f.idSave},
			column{"load_1000_us", "Load of 1,000 µs", f.load},
			column{"save_10_us", "Save to 10 µs", f.toShort},
			column{"save_100k_us", "Save to 100,000 µs", f.toLong},
			column{"turn_save_10_us", "in a turn to 10 µs", f.turnToShort},
			column{"turn_save_100k_us", "in a turn to 100,000 µs", f.turnToLong},
		),
		Ratios: []Ratio{
			ratio("save_vs_xadd", subject.Stream, f.save[subject.Ours], f.save[subject.Stream]),
			ratio("turn_save_vs_xadd", subject.Stream, f.turnSave[subject.Ours], f.save[subject.Stream]),
			ratio("turn_id_save_vs_xadd", subject.Stream, f.idSave[subject.Ours], f.save[subject.Stream]),
			ratio("load_1000_vs_lrange", subject.List, f.load[subject.Ours], f.load[subject.List]),
			ratio("append_100k_vs_10", "10 turns", f.toLong[subject.Ours], f.toShort[subject.Ours]),
			ratio("turn_append_100k_vs_10", "10 turns", f.turnToLong[subject.Ours], f.turnToShort[subject.Ours]),
		},
	}, nil
}

// storeFigures are medians in µs.
type storeFigures struct {
	save, turnSave, idSave                   figures
	load                                     figures
	toShort, toLong, turnToShort, turnToLong figures
}

// timeSaves compares the Saves, each to a new session.
func (b *Bench) timeSaves(ctx context.Context, n int, ways map[string]subject.Sessions, f storeFigures) error {
	compared := []struct {
		name   string
		figure figures
		timed  func(*session) sample
		s      *session
	}{
		{subject.Ours, f.save, func(s *session) sample { return s.saves }, nil},
		{subject.Ours, f.turnSave, func(s *session) sample { return s.savesInTurn }, nil},
		{subject.Ours, f.idSave, func(s *session) sample { s.named = true; return s.savesInTurn }, nil},
		{subject.BsmStream, f.save, func(s *session) sample { return s.saves }, nil},
		{subject.Stream, f.save, func(s *session) sample { return s.saves }, nil},
	}
	var samples []sample
	for i := range compared {
		c := &compared[i]
		var err error
		if c.s, err = b.newSession(ways[c.name]); err != nil {
			return err
		}
		samples = append(samples, c.timed(c.s))
	}
	took, err := alternate(ctx, n, b.Pace.Store.Window, samples...)
	if err != nil {
		return err
	}
	for i, c := range compared {
		if err := c.s.check(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		c.figure.add(c.name, micros(took[i]))
	}
	return nil
}

// timeLoads compares the Loads.
func (b *Bench) timeLoads(ctx context.Context, n int, sessions map[string]*session, f storeFigures) error {
	names := []string{subject.Ours, subject.List}
	var samples []sample
	for _, name := range names {
		samples = append(samples, sessions[name].loads)
	}
	took, err := alternate(ctx, n, b.Pace.Store.Window/2, samples...)
	if err != nil {
		return err
	}
	for i, name := range names {
		f.load.add(name, micros(took[i]))
	}
	return nil
}

// timeAppends compares Saves to the long session with Saves to short ones, which are new in every
// block. In the same block, both have had a turn with ten Saves before, so the lock and the store
// are in the same state.
func (b *Bench) timeAppends(ctx context.Context, n int, way subject.Sessions, long *session, f storeFigures) error {
	short := func(timed func(*session) sample) sample {
		return func(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
			s, err := b.newSession(way)
			if err != nil {
				return nil, err
			}
			if times, err = timed(s)(ctx, times); err != nil {
				return nil, err
			}
			return times, s.check(ctx)
		}
	}
	after, within := func(s *session) sample { return s.savesAfterTurn }, func(s *session) sample { return s.savesInTurn }
	took, err := alternate(ctx, n, b.Pace.Store.Window, short(after), long.savesAfterTurn, short(within), long.savesInTurn)
	if err != nil {
		return err
	}
	for i, figure := range []figures{f.toShort, f.toLong, f.turnToShort, f.turnToLong} {
		figure.add(subject.Ours, micros(took[i]))
	}
	return nil
}

func (b *Bench) newSession(way subject.Sessions) (*session, error) {
	s, err := way.Session(b.key("store"))
	return &session{Session: s}, err
}

// filled returns a session of each of the ways with the turns that are to be loaded.
func (b *Bench) filled(ctx context.Context, ways map[string]subject.Sessions, names ...string) (map[string]*session, error) {
	sessions := map[string]*session{}
	for _, name := range names {
		s, err := b.newSession(ways[name])
		if err == nil {
			err = s.save(ctx, loadTurns)
		}
		if err == nil {
			err = s.check(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		sessions[name] = s
	}
	return sessions, nil
}

// long returns the long session.
func (b *Bench) long(ctx context.Context, way subject.Sessions) (*session, error) {
	b.Progress(fmt.Sprintf("%-8s filling a session", "store"))
	name := b.key("store")
	turns := cmp.Or(b.longTurns, longTurns)
	if err := subject.Extend(ctx, subject.Setup{Addr: b.Addr}, name, turns, exchange); err != nil {
		return nil, err
	}
	s, err := way.Session(name)
	return &session{Session: s, n: turns}, err
}
