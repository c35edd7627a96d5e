package scenario

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/bench/internal/wire"
	"github.com/belugalock/belugalock/lockedmemory"
)

const (
	shortTurns  = 100
	lastTurns   = 20
	editedTurns = 1000
	recordSize  = 58 // of an ID
)

// editedExchange is an exchange of 1 KB.
func editedExchange(n int) (question, answer subject.Message) { return exchangeOf(n, 400, 624) }

// history measures what products do with a history, beside Save and Load: its last turns, whether a
// message was answered, a Replace, and for how long Redis serves no other client while a long
// history is replaced or removed.
func (b *Bench) history(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.History, []string{subject.Ours, subject.Stream}
	var counter wire.Counter
	way, err := subject.OpenSessions(subject.Ours, subject.Setup{Addr: b.Addr, TTL: ttl, Commands: &counter})
	if err != nil {
		return nil, err
	}
	defer way.Close()
	h := &histories{way: way, client: redis.NewClient(&redis.Options{Addr: b.Addr})}
	defer h.client.Close()
	b.Progress(fmt.Sprintf("%-8s filling sessions", "history"))
	if err := h.fill(ctx, b); err != nil {
		return nil, err
	}

	f := historyFigures{figures{}, figures{}, figures{}, figures{}, figures{}, map[string][][]float64{}}
	for n := range pace.N {
		b.round("history", n, pace.N, names)
		before := counter.Trips()
		if err := h.answered(ctx); err != nil {
			return nil, err
		}
		f.trips.add(subject.Ours, float64(counter.Trips()-before))
		if err := h.timeCalls(ctx, n, pace.Window, f); err != nil {
			return nil, err
		}
		if err := h.timeSteps(ctx, f); err != nil {
			return nil, err
		}
	}
	return f.outcome(names, pace.N), nil
}

// historyFigures are what the rounds have measured.
type historyFigures struct {
	lastOfShort, lastOfLong figures // in µs
	replaceOne, replaceAll  figures // in ms
	trips                   figures
	steps                   map[string][][]float64 // of each operation and round, in ms
}

// The operations whose steps are timed.
const (
	stepsOfReplace = "Replace"
	stepsOfClear   = "Clear"
	stepsOfDelete  = "Delete"
	firstAccess    = "first access" // which trims as many turns as one may
	lazyExpiry     = "lazy expiry"
	eagerExpiry    = "eager expiry" // without lazyfree-lazy-expire; for information
)

func (f historyFigures) outcome(names []string, n int) *Outcome {
	o := &Outcome{
		Title:  "the last 20 turns, a Replace of 1,000 turns of 1 KB, and what blocks Redis in a history of 100,000",
		Rounds: n,
		Rows: rows(names,
			column{"last_20_of_100_us", "last 20 of 100 µs", f.lastOfShort},
			column{"last_20_of_100k_us", "of 100,000 µs", f.lastOfLong},
			column{"replace_1_of_1000_ms", "Replace 1 of 1,000 ms", f.replaceOne},
			column{"replace_1000_ms", "Replace 1,000 ms", f.replaceAll},
		),
		Ratios: []Ratio{
			{"answered_round_trips", "", stats.SpreadOf(f.trips[subject.Ours])},
			ratio("last_20_100k_vs_100", "100 turns", f.lastOfLong[subject.Ours], f.lastOfShort[subject.Ours]),
			ratio("replace_1_of_1000_vs_pipeline", subject.Stream, f.replaceOne[subject.Ours], f.replaceOne[subject.Stream]),
			ratio("replace_1000_vs_pipeline", subject.Stream, f.replaceAll[subject.Ours], f.replaceAll[subject.Stream]),
		},
	}
	var longest stats.Spread
	for _, what := range []string{stepsOfReplace, stepsOfClear, stepsOfDelete, firstAccess, lazyExpiry, eagerExpiry} {
		s := longestStep(f.steps[what])
		key := strings.ReplaceAll(strings.ToLower(what), " ", "_") + "_step_ms"
		o.Rows[0].Cells = append(o.Rows[0].Cells, Cell{key, what + ": step ms", s})
		if what != eagerExpiry {
			longest = atLeast(longest, s)
		}
	}
	o.Ratios = append(o.Ratios, Ratio{"longest_step_ms", "", longest})
	return o
}

// atLeast returns the higher of each of two figures.
func atLeast(a, b stats.Spread) stats.Spread {
	return stats.Spread{Median: max(a.Median, b.Median), Min: max(a.Min, b.Min), Max: max(a.Max, b.Max)}
}

// longestStep returns the longest of all steps: by their medians of the rounds, by their shortest
// times, and by their longest. Each round has the same steps. A busy machine stretches another step
// in each round, so the longest time of a round says more about the machine than about Redis.
func longestStep(rounds [][]float64) (longest stats.Spread) {
	for i := range rounds[0] {
		var times []float64
		for _, steps := range rounds {
			if i < len(steps) {
				times = append(times, steps[i])
			}
		}
		longest = atLeast(longest, stats.SpreadOf(times))
	}
	return longest
}

// answeredID is the ID of the newest turn of the short session.
const answeredID = "message"

// histories are the sessions of the scenario history.
type histories struct {
	way                 subject.Sessions
	client              *redis.Client
	short, long, edited *subject.History
	removed             *subject.History // a copy of long, in each round
	turns               int              // of long
}

func (h *histories) fill(ctx context.Context, b *Bench) error {
	h.turns = cmp.Or(b.longTurns, longTurns)
	for _, s := range []struct {
		history  **subject.History
		turns    int
		exchange func(n int) (question, answer subject.Message)
	}{
		{&h.short, shortTurns - 1, exchange}, {&h.long, h.turns, exchange}, {&h.edited, editedTurns, editedExchange}, {&h.removed, 0, exchange},
	} {
		name := b.key("history")
		session, err := h.way.Session(name)
		if err != nil {
			return err
		}
		*s.history = session.(*subject.History)
		if err := subject.Extend(ctx, subject.Setup{Addr: b.Addr}, name, s.turns, s.exchange); err != nil {
			return err
		}
	}
	question, answer := exchange(0)
	if err := h.short.SaveOnce(ctx, answeredID, question, answer); err != nil {
		return err
	}
	pipe := h.client.Pipeline()
	for n := range h.turns {
		sum := sha256.Sum256([]byte(strconv.Itoa(n)))
		pipe.HSet(ctx, h.long.Prefix+"ids", sum[:16], "1"+strings.Repeat("0", recordSize))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	// Redis knows all scripts before anything is measured.
	_, err := h.replaces(h.edited, lastTurns, 1)(ctx, nil)
	return errors.Join(err, h.answered(ctx), h.client.ConfigSet(ctx, "slowlog-max-len", "1000000").Err())
}

// answered asks for the turn of the short session that has an ID.
func (h *histories) answered(ctx context.Context) error {
	_, known, err := h.short.Store.Answered(ctx, answeredID)
	if err == nil && !known {
		err = errors.New("no exchange is found under the ID")
	}
	return err
}

// lasts reads the last turns of a history.
func (h *histories) lasts(of *subject.History) sample {
	return func(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
		for range block {
			began := time.Now()
			exchanges, err := of.Store.Last(ctx, lastTurns)
			if err != nil {
				return nil, err
			}
			times = append(times, time.Since(began))
			if len(exchanges) != lastTurns {
				return nil, fmt.Errorf("a history has %d last turns, not %d", len(exchanges), lastTurns)
			}
		}
		return times, nil
	}
}

// replaces replaces the first count of the last turns of a history, by themselves. It times the
// Replace alone, without the lock.
func (h *histories) replaces(in *subject.History, last, count int) sample {
	return func(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
		err := in.Turn(ctx, func(ctx context.Context) error {
			before, err := in.Store.Last(ctx, last)
			if err != nil {
				return err
			}
			with := before[:count]
			began := time.Now()
			if err := in.Store.Replace(ctx, with[0].Place, with[count-1].Place, with...); err != nil {
				return err
			}
			times = append(times, time.Since(began))
			after, err := in.Store.Last(ctx, last)
			if err != nil {
				return err
			}
			if !slices.EqualFunc(before, after, haveSameMessages) || before[0].Place == after[0].Place {
				return errors.New("a Replace has left other exchanges")
			}
			return nil
		})
		return times, err
	}
}

func haveSameMessages(a, b lockedmemory.Exchange[subject.Message]) bool {
	return slices.Equal(a.Messages, b.Messages)
}

// pipelines writes as many exchanges as the edited session has with bare commands.
func (h *histories) pipelines(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
	pipe, err := subject.Plain(ctx, h.client, "history:plain", editedTurns, editedExchange)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	times = append(times, time.Since(began))
	return times, h.client.Unlink(ctx, "history:plain").Err()
}

// timeCalls times the reads of the last turns, and the Replaces.
func (h *histories) timeCalls(ctx context.Context, n int, window time.Duration, f historyFigures) error {
	took, err := alternate(ctx, n, window, h.lasts(h.short), h.lasts(h.long))
	if err != nil {
		return err
	}
	f.lastOfShort.add(subject.Ours, micros(took[0]))
	f.lastOfLong.add(subject.Ours, micros(took[1]))
	took, err = alternate(ctx, n, window,
		h.replaces(h.edited, lastTurns, 1), h.replaces(h.edited, editedTurns, editedTurns), h.pipelines)
	if err != nil {
		return err
	}
	f.replaceOne.add(subject.Ours, millis(took[0]))
	f.replaceAll.add(subject.Ours, millis(took[1]))
	f.replaceOne.add(subject.Stream, millis(took[2]))
	f.replaceAll.add(subject.Stream, millis(took[2]))
	return nil
}

// timeSteps takes from Redis how long it runs each step of a Replace of the long history, and of
// what removes a copy of it.
func (h *histories) timeSteps(ctx context.Context, f historyFigures) error {
	replace := func(ctx context.Context) error {
		_, err := h.replaces(h.long, lastTurns, 1)(ctx, nil)
		return err
	}
	bounded, err := h.removed.Bounded(h.turns / 2)
	if err != nil {
		return err
	}
	trims := func(ctx context.Context) error {
		question, answer := exchange(0)
		return bounded.Save(ctx, question, answer)
	}
	for _, of := range []struct {
		what, command string
		key           string // that all its steps name
		call          func(ctx context.Context) error
	}{
		{stepsOfReplace, "evalsha", h.long.Prefix + "stage", replace},
		{stepsOfClear, "evalsha", h.removed.Prefix + "stage", h.removed.Clear},
		{stepsOfDelete, "evalsha", h.removed.Prefix + "stage", h.removed.Delete},
		{firstAccess, "evalsha", h.removed.Prefix + "mark", trims},
		{lazyExpiry, "exists", h.removed.Prefix + "log", h.expires("yes")},
		{eagerExpiry, "exists", h.removed.Prefix + "log", h.expires("no")},
	} {
		for _, key := range []string{"log", "ids"} {
			if err := h.client.Copy(ctx, h.long.Prefix+key, h.removed.Prefix+key, 0, true).Err(); err != nil {
				return err
			}
		}
		times, err := h.timed(ctx, of.command, of.key, of.call)
		if err != nil {
			return fmt.Errorf("%s: %w", of.what, err)
		}
		f.steps[of.what] = append(f.steps[of.what], times)
	}
	return nil
}

// expires lets the log of the removed session expire. Redis removes an expired key when a command
// looks for it, and does so here: between the commands of a pipeline no timer of Redis runs.
func (h *histories) expires(lazily string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := h.client.ConfigSet(ctx, "lazyfree-lazy-expire", lazily).Err(); err != nil {
			return err
		}
		pipe := h.client.Pipeline()
		pipe.PExpire(ctx, h.removed.Prefix+"log", time.Millisecond)
		pipe.Do(ctx, "debug", "sleep", "0.005")
		found := pipe.Exists(ctx, h.removed.Prefix+"log")
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if found.Val() != 0 {
			return errors.New("the log has not expired")
		}
		return nil
	}
}

// timed returns how long Redis has run each command with a key during a call. The SLOWLOG has the
// commands of scripts, too.
func (h *histories) timed(ctx context.Context, command, key string, call func(ctx context.Context) error) (times []float64, err error) {
	err = errors.Join(h.client.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err(), h.client.Do(ctx, "slowlog", "reset").Err())
	if err != nil {
		return nil, err
	}
	err = call(ctx)
	entries, err2 := h.client.SlowLogGet(ctx, -1).Result()
	if err := errors.Join(err, err2, h.client.ConfigSet(ctx, "slowlog-log-slower-than", "-1").Err()); err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(entries) { // the newest is the first
		if e.Args[0] == command && slices.Contains(e.Args, key) {
			times = append(times, millis(e.Duration))
		}
	}
	if len(times) == 0 {
		return nil, fmt.Errorf("no %s with the key is in the SLOWLOG", command)
	}
	return times, nil
}
