package scenario

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
)

const (
	// notifyKeys are the keys of pgNotify.
	notifyKeys = 16
	// notifyWindows are the windows of a round with notices, and those without.
	notifyWindows = 4
)

// pgNotify measures what the notices to waiters cost. Each of 16 keys is handed off from one owner
// to the next again and again, by the same two calls of the same two drivers. With notices, the
// next owner waits at the other driver. Without notices, the next owner waits at the driver that
// releases, which wakes its own waiters. All handoffs are the same in the database. Beside that
// stands the throughput of contended.
func (b *Bench) pgNotify(ctx context.Context) (*Outcome, error) {
	pace, name := b.Pace.PgNotify, subject.OursPostgres
	pool, err := pgxpool.New(ctx, b.Postgres)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var drivers [2]driver.Driver
	for i := range drivers {
		if drivers[i], err = pglock.NewDriver(ctx, pool, nil); err != nil {
			return nil, err
		}
		defer drivers[i].Close()
	}
	var notified, unnotified, alone, waited, remote = figures{}, figures{}, figures{}, figures{}, figures{}
	for n := range pace.N {
		b.round("pg_notify", n, pace.N, []string{name})
		handoffs := map[bool]float64{} // in the windows with and without notices
		for i := range 2 * notifyWindows {
			across := (n+i+i/2)%2 == 0 // with, without, without, with
			perSecond, err := b.passOn(ctx, drivers, across, pace)
			if err != nil {
				return nil, err
			}
			handoffs[across] += perSecond / notifyWindows
		}
		notified.add(name, handoffs[true])
		unnotified.add(name, handoffs[false])
		with, without, err := b.contended(ctx, pace)
		if err != nil {
			return nil, err
		}
		alone.add(name, without.perSecond)
		waited.add(name, with.perSecond)
		remote.add(name, float64(with.remote)/float64(max(1, with.acquired)))
	}
	return &Outcome{
		Title:  "PostgreSQL, 16 keys handed off again and again; and acquired by 2 processes",
		Rounds: pace.N,
		Rows: rows([]string{name},
			column{"unnotified_per_s", "handoffs/s without notices", unnotified},
			column{"notified_per_s", "with notices", notified},
			column{"alone_per_s", "acquisitions/s without waiters", alone},
			column{"waited_per_s", "with waiters", waited},
			column{"remote", "handed off", remote},
		),
		Ratios: []Ratio{
			ratio("pg_notify_tax", "no notices", notified[name], unnotified[name]),
			ratio("pg_contended_vs_free", "no waiters", waited[name], alone[name]),
		},
	}, nil
}

// passOn returns the handoffs per second of all keys: across the drivers, or each key within one
// driver.
func (b *Bench) passOn(ctx context.Context, drivers [2]driver.Driver, across bool, pace Rounds) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	key := b.key("pg_notify")
	var handoffs atomic.Int64
	var over atomic.Bool // ⚑ the end of ctx would break connections
	var all sync.WaitGroup
	for i := range notifyKeys {
		relay := relayed{name: driver.Name{Namespace: "bench", Key: key + "-" + strconv.Itoa(i)}, from: drivers[i%2], to: drivers[i%2]}
		if across {
			relay.to = drivers[1-i%2]
		}
		all.Go(func() {
			if err := relay.run(ctx, &over, &handoffs); err != nil {
				cancel(err)
			}
		})
	}
	sleep(ctx, pace.Settle)
	before, began := handoffs.Load(), time.Now()
	sleep(ctx, pace.Window/notifyWindows)
	after, took := handoffs.Load(), time.Since(began)
	over.Store(true)
	all.Wait()
	return float64(after-before) / took.Seconds(), context.Cause(ctx)
}

// relayed is a name that is handed off from owner to owner.
type relayed struct {
	name     driver.Name
	from, to driver.Driver // of the holder, and of the next owner; they swap
}

func (r relayed) request() driver.AcquireRequest {
	return driver.AcquireRequest{Name: r.name, Owner: rand.Text(), TTL: ttl}
}

// acquire asks a driver for a lock. An outcome other than want is an error.
func acquire(ctx context.Context, d driver.Driver, req driver.AcquireRequest, want driver.Outcome) error {
	reply, err := d.Acquire(ctx, req)
	if err == nil && reply.Outcome != want {
		err = fmt.Errorf("the outcome of an acquisition is %d, want %d", reply.Outcome, want)
	}
	return err
}

// run hands the name off until it is over. Each next owner is in the queue before the release.
func (r relayed) run(ctx context.Context, over *atomic.Bool, handoffs *atomic.Int64) error {
	holder := r.request()
	if err := acquire(ctx, r.from, holder, driver.Granted); err != nil {
		return err
	}
	for !over.Load() {
		waiter := r.request()
		waiter.Alive, waiter.Seq = longestRound, 1
		if err := r.handOff(ctx, holder.Owner, waiter); err != nil {
			return err
		}
		handoffs.Add(1)
		holder, r.from, r.to = waiter, r.to, r.from
	}
	return nil
}

func (r relayed) handOff(ctx context.Context, holder string, waiter driver.AcquireRequest) error {
	listener, ok := driver.As[driver.Listener](r.to)
	if !ok {
		return errors.New("the driver does not notify")
	}
	wakes, stop, err := listener.Listen(ctx, r.name, waiter.Owner)
	if err != nil {
		return err
	}
	defer stop()
	if err := acquire(ctx, r.to, waiter, driver.Busy); err != nil {
		return err
	}
	if _, err := r.from.Release(ctx, driver.ReleaseRequest{Name: r.name, Owner: holder}); err != nil {
		return err
	}
	select {
	case wake := <-wakes:
		if wake.Grant.Outcome != driver.Granted {
			return errors.New("a wake shows no grant")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// contended counts acquisitions of 16 keys that are released at once. Without waiters, two
// processes have 8 of them each. With waiters, two processes of 16 goroutines want all of them.
// Both ways, one commit for each acquisition is flushed to disk.
func (b *Bench) contended(ctx context.Context, pace Rounds) (with, without crossSum, err error) {
	task := func(keys int) crowdTask {
		return crowdTask{
			Subject: subject.OursPostgres, Addr: b.Postgres, Key: b.key("pg_notify"), Goroutines: keys, Keys: keys,
		}
	}
	both := task(notifyKeys)
	with, err1 := b.count(ctx, pace, both, both)
	without, err2 := b.count(ctx, pace, task(notifyKeys/2), task(notifyKeys/2))
	b.addFaults(subject.OursPostgres, with.faults)
	b.addFaults(subject.OursPostgres, without.faults)
	return with, without, errors.Join(err1, err2)
}
