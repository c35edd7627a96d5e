package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
)

// pgSerial is serial on PostgreSQL. The bare lock has two UPDATEs, each flushed to disk. A release of this
// library without waiters is not flushed, so the release of the second bare lock is not, either.
func (b *Bench) pgSerial(ctx context.Context) (*Outcome, error) {
	names := []string{subject.OursPostgres, subject.Cirello, subject.Allisson, subject.Updates, subject.UpdatesUnflushed}
	p50, _, err := b.serialTimes(ctx, "pg_serial", b.Pace.PgSerial, names)
	if err != nil {
		return nil, err
	}
	return &Outcome{
		Title:  "PostgreSQL, one goroutine, a free key: acquire and release",
		Rounds: b.Pace.PgSerial.N,
		Rows:   rows(names, column{"p50_us", "p50 µs", p50}),
		Ratios: []Ratio{ratio("pg_serial_vs_raw", subject.Updates, p50[subject.OursPostgres], p50[subject.Updates])},
	}, nil
}

// pgSave compares a Save of 4 KB in a turn with an INSERT of the same bytes.
func (b *Bench) pgSave(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.PgSave, []string{subject.OursPostgres, subject.Insert}
	ways, closeAll, err := openAll(b, names, subject.OpenSessions)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	p50 := figures{}
	for n := range pace.N {
		b.round("pg_save", n, pace.N, names)
		var sessions []*session
		for _, name := range names {
			s, err := b.newSession(ways[name])
			if err != nil {
				return nil, err
			}
			s.large = true
			sessions = append(sessions, s)
		}
		took, err := alternate(ctx, n, pace.Window, sessions[0].savesInTurn, sessions[1].saves)
		if err != nil {
			return nil, err
		}
		for i, name := range names {
			if err := sessions[i].check(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			p50.add(name, micros(took[i]))
		}
	}
	return &Outcome{
		Title:  "PostgreSQL, a Save of 4 KB in a turn",
		Rounds: pace.N,
		Rows:   rows(names, column{"save_4k_us", "Save µs", p50}),
		Ratios: []Ratio{ratio("pg_save_vs_insert", subject.Insert, p50[subject.OursPostgres], p50[subject.Insert])},
	}, nil
}

// pgWaiters counts the connections of a Locker with a thousand waiters, each for a held key of its own.
func (b *Bench) pgWaiters(ctx context.Context) (*Outcome, error) {
	pace, name := b.Pace.PgWaiters, subject.OursPostgres
	most := figures{}
	for n := range pace.N {
		b.round("pg_waiters", n, pace.N, []string{name})
		connections, err := b.connections(ctx, pace.Window)
		if err != nil {
			return nil, err
		}
		most.add(name, float64(connections))
	}
	return &Outcome{
		Title:  "PostgreSQL, 1,000 waiters of one Locker for 1,000 keys that stay held",
		Rounds: pace.N,
		Rows:   rows([]string{name}, column{"connections", "connections", most}),
		Ratios: []Ratio{{"pg_connections_1000_waiters", "", stats.SpreadOf(most[name])}},
	}, nil
}

func (b *Bench) connections(ctx context.Context, window time.Duration) (most int, err error) {
	conn, err := pgx.Connect(ctx, b.Postgres)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	keys, application := b.newKeys("pg_waiters"), b.key("waiters")
	waiting := subject.Setup{Addr: b.Postgres + "&application_name=" + application, TTL: ttl}
	err = b.waitFor(ctx, subject.OursPostgres, waiting, keys, 0, func(ctx context.Context) error {
		var full time.Time // all are in the queue since then
		for ctx.Err() == nil && (full.IsZero() || time.Since(full) < window) {
			var open, queued int
			err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = $1),
				(SELECT count(*) FROM belugalock.waiter WHERE key = ANY ($2))`, application, keys).Scan(&open, &queued)
			if err != nil {
				return err
			}
			most = max(most, open)
			if queued == len(keys) && full.IsZero() {
				full = time.Now()
			}
			sleep(ctx, 20*time.Millisecond)
		}
		return nil
	})
	return most, err
}

// pgRenew times one renewal of 1,000 leases.
func (b *Bench) pgRenew(ctx context.Context) (*Outcome, error) {
	pool, err := pgxpool.New(ctx, b.Postgres)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	locks, err := pglock.NewDriver(ctx, pool, nil)
	if err != nil {
		return nil, err
	}
	defer locks.Close()
	b.Progress(fmt.Sprintf("%-8s acquiring 1,000 leases", "pg_renew"))
	var reqs []driver.ExtendRequest
	for i, key := range b.newKeys("pg_renew") {
		req := driver.ExtendRequest{Name: driver.Name{Namespace: "bench", Key: key}, Owner: fmt.Sprintf("%032x", i+1), TTL: ttl}
		reqs = append(reqs, req)
	}
	failures := make([]error, len(reqs))
	each(2, len(reqs), func(i int) {
		req := driver.AcquireRequest{Name: reqs[i].Name, Owner: reqs[i].Owner, TTL: ttl}
		failures[i] = acquire(ctx, locks, req, driver.Granted)
	})
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}

	pace, name, took := b.Pace.PgRenew, subject.OursPostgres, figures{}
	for n := range pace.N {
		b.round("pg_renew", n, pace.N, []string{name})
		median, err := alternate(ctx, n, pace.Window, func(ctx context.Context, times []time.Duration) ([]time.Duration, error) {
			began := time.Now()
			for _, reply := range locks.Extend(ctx, reqs) {
				if reply.Err != nil || !reply.Held {
					return nil, errors.Join(errors.New("a lease is not renewed"), reply.Err)
				}
			}
			return append(times, time.Since(began)), nil
		})
		if err != nil {
			return nil, err
		}
		took.add(name, millis(median[0]))
	}
	return &Outcome{
		Title:  "PostgreSQL, 1,000 leases of one process: one renewal of all",
		Rounds: pace.N,
		Rows:   rows([]string{name}, column{"renew_1000_ms", "ms", took}),
		Ratios: []Ratio{{"pg_renew_1000_ms", "", stats.SpreadOf(took[name])}},
	}, nil
}

// pgHold is how long the holders of pgCross hold the lock.
const pgHold = 5 * time.Millisecond

// pgCross is cross on PostgreSQL. The ideal holds the lock all the time, and needs one bare commit and one
// bare notification for each handoff between processes, but not within a process.
func (b *Bench) pgCross(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.PgCross, []string{subject.OursPostgres, subject.Cirello, subject.Allisson}
	var rate, share, held, remote, handoff, ofIdeal = figures{}, figures{}, figures{}, figures{}, figures{}, figures{}
	for n := range pace.N {
		ideal, err := b.contend(ctx, subject.Ideal, pgHold, pace)
		if err != nil {
			return nil, err
		}
		least, err := b.bareHandoff(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range b.round("pg_cross", n, pace.N, names) {
			sum, err := b.contend(ctx, name, pgHold, pace)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			b.addFaults(name, sum.faults)
			rate.add(name, sum.perSecond)
			held.add(name, sum.perSecond/ideal.perSecond)
			share.add(name, sum.minMaxShare)
			if name == subject.OursPostgres {
				perSecond := float64(sum.remote) / pace.Window.Seconds()
				remote.add(name, perSecond)
				handoff.add(name, millis(least))
				ofIdeal.add(name, sum.perSecond/ideal.perSecond+perSecond*least.Seconds())
			}
		}
	}
	return &Outcome{
		Title:  "PostgreSQL, 4 processes of 8 goroutines, one key, held for 5 ms",
		Rounds: pace.N,
		Rows: rows(names,
			column{"per_s", "acquisitions/s", rate},
			column{"held", "of the time held", held},
			column{"remote_per_s", "from other processes/s", remote},
			column{"bare_handoff_ms", "bare commit and notify ms", handoff},
			column{"min_max_share", "min/max share", share},
		),
		Ratios: []Ratio{{"pg_cross_vs_ideal", "bare handoffs", stats.SpreadOf(ofIdeal[subject.OursPostgres])}},
	}, nil
}

// bareHandoff returns how long a bare commit takes, and then a notification until another connection has it.
func (b *Bench) bareHandoff(ctx context.Context) (time.Duration, error) {
	connect := func(synchronousCommit string) (*pgx.Conn, error) {
		config, err := pgx.ParseConfig(b.Postgres)
		if err != nil {
			return nil, err
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		config.RuntimeParams["synchronous_commit"] = synchronousCommit
		return pgx.ConnectConfig(ctx, config)
	}
	commits, err1 := connect("on")
	notifies, err2 := connect("off")
	listens, err3 := connect("off")
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, err
	}
	key := b.key("handoff")
	defer func() {
		for _, conn := range []*pgx.Conn{commits, notifies, listens} {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	_, err1 = commits.Exec(ctx, "INSERT INTO bare_lock VALUES ($1)", key)
	_, err2 = listens.Exec(ctx, "LISTEN bare")
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	var times []time.Duration
	for range block {
		began := time.Now()
		_, err1 := commits.Exec(ctx, "UPDATE bare_lock SET owner = $2 WHERE key = $1", key, strings.Repeat("f", 32))
		_, err2 := notifies.Exec(ctx, "SELECT pg_notify('bare', $1)", strings.Repeat("f", 64))
		_, err3 := listens.WaitForNotification(ctx)
		if err := errors.Join(err1, err2, err3); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	return stats.Quantile(times, 0.5), nil
}
