package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// soon bounds a call that no locked row may delay. The machine may be busy.
const soon = time.Second

// A transaction of another program locks rows of leases. Other leases of the batch are renewed at once.
func TestExtend_N_rowsLocked_othersRenewed(t *testing.T) {
	db := migrated(t)
	d := drivers(db.URL())(t)
	reqs := make([]driver.ExtendRequest, 60)
	for i := range reqs {
		req := acquire(owner1, time.Minute)
		req.Name.Key = fmt.Sprintf("k%02d", i)
		mustAcquire(t, d, req)
		reqs[i] = driver.ExtendRequest{Name: req.Name, Owner: owner1, TTL: time.Hour}
	}
	stranger := newSession(t, db.URL())
	stranger.must("BEGIN; SELECT FROM belugalock.lease WHERE key < 'k50' FOR UPDATE")
	start := time.Now()
	for i, reply := range d.Extend(context.Background(), reqs) {
		if i < 50 && (!errors.Is(reply.Err, driver.ErrTemporary) || reply.Held) || i >= 50 && (reply.Err != nil || !reply.Held) {
			t.Errorf("Extend of lease %d: %+v", i, reply)
		}
	}
	if took := time.Since(start); took > soon {
		t.Errorf("50 locked rows delay the renewal of 10 leases by %s", took)
	}
	if reply := d.Extend(context.Background(), reqs[:1])[0]; !errors.Is(reply.Err, driver.ErrTemporary) {
		t.Errorf("Extend of a locked row alone: %+v", reply)
	}
	if renewed := do(t, db, "SELECT count(*) FROM belugalock.lease WHERE expires_at > belugalock.clock_v1() + 1800000000"); renewed != "10" {
		t.Errorf("%s leases were renewed, want 10", renewed)
	}
	stranger.must("ROLLBACK")
	for i, reply := range d.Extend(context.Background(), reqs) {
		if !reply.Held || reply.Err != nil {
			t.Errorf("Extend of lease %d, unlocked: %+v", i, reply)
		}
	}
}

// A short wait for a row is not an error, and each lease of a batch gets one.
func TestExtend_N_rowLockedBriefly_renewed(t *testing.T) {
	db := migrated(t)
	d := drivers(db.URL())(t)
	other := acquire(owner2, time.Minute)
	other.Name.Key = "other"
	for _, req := range []driver.AcquireRequest{acquire(owner1, time.Minute), other} {
		mustAcquire(t, d, req)
	}
	stranger, watch := newSession(t, db.URL()), newSession(t, db.URL())
	for attempt := 1; ; attempt++ { // the row may stay locked for too long on a busy machine
		stranger.must("BEGIN; SELECT FROM belugalock.lease WHERE key = 'k' FOR UPDATE")
		extending, extended := context.WithCancel(context.Background())
		unlocked := make(chan struct{})
		go func() {
			defer close(unlocked)
			for extending.Err() == nil &&
				watch.must("SELECT count(*)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "0" {
			}
			stranger.must("ROLLBACK")
		}()
		replies := d.Extend(context.Background(), []driver.ExtendRequest{
			{Name: name, Owner: owner1, TTL: time.Hour}, {Name: other.Name, Owner: owner2, TTL: time.Hour},
		})
		extended()
		<-unlocked
		if !replies[1].Held {
			t.Fatalf("Extend of another lease: %+v", replies[1])
		}
		if replies[0].Held {
			return
		}
		if attempt == 20 || !errors.Is(replies[0].Err, driver.ErrTemporary) {
			t.Fatalf("Extend of a row that is locked briefly: %+v", replies[0])
		}
	}
}

// Calls of names whose rows are locked leave a connection to other calls.
func TestAcquire_L_rowsLocked_freeNameSoon(t *testing.T) {
	db := migrated(t)
	d := drivers(db.URL())(t)
	const names = 50
	requests := make([]driver.AcquireRequest, names)
	for i := range requests {
		requests[i] = acquire(owner1, time.Minute)
		requests[i].Name.Key = fmt.Sprintf("locked%d", i)
		mustAcquire(t, d, requests[i])
	}
	stranger := newSession(t, db.URL())
	stranger.must("BEGIN; SELECT FROM belugalock.lease FOR UPDATE")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, names)
	for _, req := range requests {
		go func() {
			req.Owner = owner2
			_, err := d.Acquire(ctx, req)
			if err == nil || driver.MayHaveEffect(err) && ctx.Err() == nil {
				ended <- fmt.Errorf("Acquire of a locked row: %w", err)
			}
			ended <- nil
		}()
	}
	for i := range 5 {
		req := acquire(owner1, time.Minute)
		req.Name.Key = fmt.Sprintf("free%d", i)
		inTime, cancel := context.WithTimeout(context.Background(), 3*soon)
		if _, err := d.Acquire(inTime, req); err != nil {
			t.Errorf("Acquire of a free name: %v", err)
		}
		cancel()
	}
	cancel()
	for range names {
		must(t, <-ended)
	}
}

// A wait for a row that ends is no failure: another commit may wait for a slow disk.
func TestRelease_L_rowLockedForHalfASecond_succeeds(t *testing.T) {
	db := migrated(t)
	d := drivers(db.URL())(t)
	mustAcquire(t, d, acquire(owner1, time.Minute))
	stranger := newSession(t, db.URL())
	stranger.must("BEGIN; SELECT FROM belugalock.lease FOR UPDATE")
	released := make(chan error)
	go func() {
		reply, err := d.Release(context.Background(), driver.ReleaseRequest{Name: name, Owner: owner1})
		if err == nil && !reply.Released {
			err = errors.New("not released")
		}
		released <- err
	}()
	time.Sleep(500 * time.Millisecond)
	stranger.must("ROLLBACK")
	if err := <-released; err != nil {
		t.Errorf("Release: %v", err)
	}
}

// Each function reads the clock after it has waited for the row, so a grant cannot end unseen.
func TestDriver_S1_endsWhileRowLocked_isOver(t *testing.T) {
	const ttl = 100 * time.Millisecond // less than a function waits for a row
	for call, decide := range map[string]struct{ prepare, sql, want string }{
		"raise": {
			"SELECT belugalock.acquire_v1('n', 'k', 'a', 100000, '', 0, 0, 0, '')",
			"SELECT held FROM belugalock.raise_v1('n', 'k', 'a', 1)", "f",
		},
		"ask": {
			`SELECT belugalock.acquire_v1('n', 'k', 'a', 100000, '"work":"w"', 0, 0, 0, '')`,
			"SELECT asks FROM belugalock.ask_v1('n', 'k', 0, 'w', 0)", "f",
		},
		"extend": {
			"SELECT belugalock.acquire_v1('n', 'k', 'a', 100000, '', 0, 0, 0, '')",
			"SELECT outcome FROM belugalock.extend_v1('{n}', '{k}', '{a}', '{1000000}', 200)", "not held",
		},
		"acquire": {
			"SELECT belugalock.acquire_v1('n', 'k', 'a', 100000, '', 0, 0, 0, '')",
			"SELECT outcome FROM belugalock.acquire_v1('n', 'k', 'a', 100000, '', 0, 0, 0, '')", "cancelled",
		},
		"release": { // the waiter's promise ends
			"SELECT belugalock.acquire_v1('n', 'k', 'a', 60000000, '', 0, 0, 0, ''); " +
				"SELECT belugalock.acquire_v1('n', 'k', 'b', 60000000, '', 100000, 1, 0, '')",
			"SELECT coalesce(to_message, 'none') FROM belugalock.release_v1('n', 'k', 'a', 0, false)", "none",
		},
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			db := migrated(t)
			stranger, caller := newSession(t, db.URL()), newSession(t, db.URL())
			pid := caller.must("SELECT pg_backend_pid()::text")
			for { // until the wait for the row was no longer than the function allows
				do(t, db, "TRUNCATE belugalock.lease, belugalock.waiter")
				stranger.must(decide.prepare)
				stranger.must("BEGIN; SELECT FROM belugalock.lease FOR UPDATE")
				answer := make(chan string, 1)
				go func() { answer <- caller.answer(decide.sql) }()
				for len(answer) == 0 && do(t, db,
					"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = "+pid) == "0" {
				}
				time.Sleep(ttl + 5*time.Millisecond)
				stranger.must("ROLLBACK")
				if got := <-answer; got == "55P03" {
					continue
				} else if got != decide.want {
					t.Errorf("%s: %q, want %q", decide.sql, got, decide.want)
				}
				return
			}
		})
	}
}
