package pglock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
)

// pollEvery is how often the first waiter of a queue is looked up, at the least: a random time up to
// twice as long. The waiter after n others is looked up every n+1 times as long, up to 20 times.
const pollEvery = 5 * time.Millisecond

// pollFor is how long a driver polls before it tries to listen again: other drivers may have ended.
const pollFor = time.Minute

// poll asks for the handoffs of all waiters of the driver, in one statement, for pollFor. After a
// failure all waiters ask by themselves.
func (w *wakes) poll() {
	for until := time.Now().Add(w.pollFor); w.ctx.Err() == nil && time.Now().Before(until); {
		var next <-chan time.Time
		switch ahead, err := w.look(); {
		case err != nil:
			next = time.After(reconnectPause)
		case ahead >= 0:
			next = time.After(time.Duration(ahead+1) * (pollEvery + rand.N(pollEvery)))
		}
		select {
		case <-next: // never without a waiter
		case <-w.entered:
		case <-w.ctx.Done():
		}
	}
}

// look wakes the waiters that have been granted their name. It returns the least number of waiters before
// one of the driver's; -1: no waiter needs another look.
func (w *wakes) look() (ahead int64, err error) {
	var namespaces, keys, owners []string
	w.mu.Lock()
	for owner, to := range w.waiting {
		if to.entered && !to.woken {
			namespaces, keys, owners = append(namespaces, to.name.Namespace), append(keys, to.name.Key), append(owners, owner)
		}
	}
	w.mu.Unlock()
	if len(owners) == 0 {
		return -1, nil
	}
	type answer struct {
		ahead   zeronull.Int8
		granted zeronull.Text
	}
	ctx, cancel := context.WithTimeout(w.ctx, answerLimit)
	defer cancel()
	answers, err := postgres.Call(ctx, w.s.held, func(row pgx.CollectableRow) (a answer, err error) {
		return a, row.Scan(&a.ahead, &a.granted)
	}, "poll_v1", namespaces, keys, owners)
	if err != nil {
		return 0, err
	}
	ahead = 19
	for _, a := range answers {
		// ⚑ The row may show a handoff that no standby has, because the wait for it was cancelled. So it only
		// wakes: the answer to the claim waits for the standby.
		w.wake(string(a.granted), driver.Wake{})
		ahead = min(ahead, int64(a.ahead)) // 0 also before the owner enters the queue
	}
	return ahead, nil
}
