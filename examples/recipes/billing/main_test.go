package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(testservers.Sharing{M: m}) }

const customers = 20

// setUp returns a lock service and a database with customers.
func setUp(t *testing.T, backend string) (lock string, db *pgxpool.Pool) {
	t.Helper()
	database := testservers.SharedPostgres(t).NewDatabase(t)
	db, err := pgxpool.New(t.Context(), database.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if _, err := db.Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `INSERT INTO customer SELECT generate_series(1, $1::int)`, customers); err != nil {
		t.Fatal(err)
	}
	if backend == "redis" {
		return testservers.SharedRedis(t).URL(), db
	}
	if err := pglock.Migrate(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	return database.URL(), db
}

func open(t *testing.T, lock string) *distlock.Locker {
	t.Helper()
	locker, err := lockurl.Open(t.Context(), lock, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
}

// provider is a slow payment provider that does not look at the key.
type provider struct {
	mu      sync.Mutex
	charged map[int64]int
}

func (p *provider) charge(_ context.Context, customer int64, _ string) error {
	time.Sleep(10 * time.Millisecond) // so that instances meet
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charged[customer]++
	return nil
}

func TestBill_manyInstances_chargeEachCustomerOnce(t *testing.T) {
	for _, backend := range []string{"redis", "postgres"} {
		t.Run(backend, func(t *testing.T) {
			lock, db := setUp(t, backend)
			p := provider{charged: map[int64]int{}}
			var mu sync.Mutex
			var all sync.WaitGroup
			sum, met := 0, 0
			for range 4 {
				locker := open(t, lock)
				all.Go(func() {
					billed, skipped, err := bill(t.Context(), locker, db, "2026-11", p.charge)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					sum, met = sum+billed, met+skipped
				})
			}
			all.Wait()
			for id := range int64(customers) {
				if n := p.charged[id+1]; n != 1 {
					t.Errorf("customer %d was charged %d times", id+1, n)
				}
			}
			if sum != customers || met == 0 {
				t.Errorf("%d customers billed; the instances met %d times", sum, met)
			}
		})
	}
}

// The instance goes on at once, and a later run bills the customer.
func TestBill_customerHeldElsewhere_isSkipped(t *testing.T) {
	lock, db := setUp(t, "redis")
	p := provider{charged: map[int64]int{}}
	other, err := open(t, lock).Acquire(t.Context(), "7-2026-11")
	if err != nil {
		t.Fatal(err)
	}
	locker := open(t, lock)
	billed, skipped, err := bill(t.Context(), locker, db, "2026-11", p.charge)
	if err != nil || billed != customers-1 || skipped != 1 || p.charged[7] != 0 {
		t.Errorf("%d billed, %d skipped, customer 7 charged %d times, %v", billed, skipped, p.charged[7], err)
	}
	if err := other.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	billed, skipped, err = bill(t.Context(), locker, db, "2026-11", p.charge)
	if err != nil || billed != 1 || skipped != 0 || p.charged[7] != 1 {
		t.Errorf("then %d billed, %d skipped, customer 7 charged %d times, %v", billed, skipped, p.charged[7], err)
	}
}

// The provider has charged, and the instance dies before the invoice is stored. The next run charges
// under the same key, so a provider that looks at the key takes the money once.
func TestBill_crashAfterCharge_sameKeyAgain(t *testing.T) {
	lock, db := setUp(t, "redis")
	locker := open(t, lock)
	ctx, die := context.WithCancel(t.Context())
	keys := map[int64][]string{}
	charge := func(_ context.Context, customer int64, key string) error {
		keys[customer] = append(keys[customer], key)
		if customer == 7 {
			die()
		}
		return nil
	}
	if billed, _, err := bill(ctx, locker, db, "2026-11", charge); err == nil || billed != 6 {
		t.Fatalf("%d billed, %v", billed, err)
	}
	if billed, _, err := bill(t.Context(), locker, db, "2026-11", charge); err != nil || billed != customers-6 {
		t.Fatalf("then %d billed, %v", billed, err)
	}
	if got := keys[7]; len(got) != 2 || got[0] != got[1] || got[0] == keys[8][0] {
		t.Errorf("customer 7 was charged under the keys %q, customer 8 under %q", got, keys[8])
	}
}
