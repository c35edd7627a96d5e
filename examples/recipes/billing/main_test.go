package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// In a process of its own, the program is a worker that never ends its first charge.
func TestMain(m *testing.M) { recipetest.Main(m, hang) }

const (
	customers = 20
	pause     = 100 * time.Millisecond // between rounds without progress
	tables    = `
		CREATE TABLE customer (id bigint PRIMARY KEY);
		CREATE TABLE invoice (customer bigint, month text, PRIMARY KEY (customer, month))`
)

func hang() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	locker, err := lockurl.Open(ctx, os.Args[1], &distlock.Options{TTL: 2 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	_, err = bill(ctx, locker, db, "2026-11", pause, func(_ context.Context, _ int64, key string) error {
		log.Print("charges ", key)
		select {}
	})
	log.Fatal(err)
}

// filled opens a database and adds customers.
func filled(t *testing.T, database string) *pgxpool.Pool {
	t.Helper()
	db := recipetest.Pool(t, database)
	if _, err := db.Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `INSERT INTO customer SELECT generate_series(1, $1::int)`, customers); err != nil {
		t.Fatal(err)
	}
	return db
}

func setUp(t *testing.T) (lock string, db *pgxpool.Pool) {
	t.Helper()
	return servers.SharedRedis(t).URL(), filled(t, servers.SharedPostgres(t).NewDatabase(t).URL())
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
	recipetest.EachBackend(t, func(t *testing.T, lock, database string) {
		db := filled(t, database)
		p := provider{charged: map[int64]int{}}
		var mu sync.Mutex
		var all sync.WaitGroup
		sum := 0
		for range 4 {
			locker := recipetest.Locker(t, lock, nil)
			all.Go(func() {
				billed, err := bill(t.Context(), locker, db, "2026-11", pause, p.charge)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				sum += billed
			})
		}
		all.Wait()
		for id := range int64(customers) {
			if n := p.charged[id+1]; n != 1 {
				t.Errorf("customer %d was charged %d times", id+1, n)
			}
		}
		if sum != customers {
			t.Errorf("%d customers billed", sum)
		}
	})
}

func TestBill_customerHeldElsewhere_namedInError(t *testing.T) {
	lock, db := setUp(t)
	p := provider{charged: map[int64]int{}}
	other, err := recipetest.Locker(t, lock, nil).Acquire(t.Context(), "7-2026-11")
	if err != nil {
		t.Fatal(err)
	}
	locker := recipetest.Locker(t, lock, nil)
	billed, err := bill(t.Context(), locker, db, "2026-11", time.Millisecond, p.charge)
	if err == nil || !strings.HasPrefix(err.Error(), "0 charges failed, 1 other customers are left") {
		t.Errorf("got the error %v", err)
	}
	if billed != customers-1 || p.charged[7] != 0 {
		t.Errorf("%d billed, customer 7 charged %d times", billed, p.charged[7])
	}
	if err := other.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	billed, err = bill(t.Context(), locker, db, "2026-11", pause, p.charge)
	if err != nil || billed != 1 || p.charged[7] != 1 {
		t.Errorf("then %d billed, customer 7 charged %d times, %v", billed, p.charged[7], err)
	}
}

// The other worker has billed all other customers before the kill, so it must come back.
func TestBill_workerKilledInCharge_otherBillsInSameRun(t *testing.T) {
	lock, db := setUp(t)
	killed := recipetest.Start(t, lock, db.Config().ConnString())
	key := killed.Await("charges ")
	var keys []string
	billed, err := bill(t.Context(), recipetest.Locker(t, lock, nil), db, "2026-11", pause, func(_ context.Context, _ int64, key string) error {
		keys = append(keys, key)
		if len(keys) == customers-1 {
			return killed.Kill()
		}
		return nil
	})
	if err != nil || billed != customers {
		t.Errorf("%d billed, %v", billed, err)
	}
	if len(keys) != customers || keys[customers-1] != key {
		t.Errorf("the killed worker charged under %q, the other one under %q", key, keys)
	}
}

func TestBill_failedCharge_othersBilled(t *testing.T) {
	lock, db := setUp(t)
	tries := 0
	billed, err := bill(t.Context(), recipetest.Locker(t, lock, nil), db, "2026-11", pause, func(_ context.Context, customer int64, _ string) error {
		if customer != 7 {
			return nil
		}
		tries++
		return errors.New("the card is refused")
	})
	if err == nil || !strings.HasPrefix(err.Error(), "1 charges failed, 0 other customers are left") {
		t.Errorf("got the error %v", err)
	}
	if billed != customers-1 || tries != 1 {
		t.Errorf("%d billed, customer 7 charged %d times", billed, tries)
	}
}

// The provider has charged, and the instance dies before the invoice is stored. The next run charges
// under the same key, so a provider that looks at the key takes the money once.
func TestBill_crashAfterCharge_sameKeyAgain(t *testing.T) {
	lock, db := setUp(t)
	locker := recipetest.Locker(t, lock, nil)
	ctx, die := context.WithCancel(t.Context())
	keys := map[int64][]string{}
	charge := func(_ context.Context, customer int64, key string) error {
		keys[customer] = append(keys[customer], key)
		if customer == 7 {
			die()
		}
		return nil
	}
	first, err := bill(ctx, locker, db, "2026-11", pause, charge)
	if err == nil || len(keys[7]) != 1 {
		t.Fatalf("%d billed, customer 7 under %q, %v", first, keys[7], err)
	}
	if billed, err := bill(t.Context(), locker, db, "2026-11", pause, charge); err != nil || billed != customers-first {
		t.Fatalf("%d billed, then %d, %v", first, billed, err)
	}
	if got := keys[7]; len(got) != 2 || got[0] != got[1] || got[0] == keys[8][0] {
		t.Errorf("customer 7 was charged under the keys %q, customer 8 under %q", got, keys[8])
	}
}
