package pglock

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The sweep deletes what has no meaning any more, and nothing else.
func TestSweep_S2_keepsWhatCounts(t *testing.T) {
	db, pool := migratedDB(t, "")
	s := opened(t, db.URL())
	do := func(sql string) string {
		rows, err := db.Do(sql)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return rows
	}
	const moments = "WITH m AS (SELECT belugalock.clock_v1() AS now, belugalock.clock_v1() - 90000000000 AS day) "
	do(moments + `INSERT INTO belugalock.lease (namespace, key, owner, released, token, block_end, expires_at, waiting, flagged_until)
		SELECT 'n', key, 'a', released, block_end, block_end, expires_at, waiting, flagged_until FROM m, LATERAL (VALUES
			('released', true, day, day, 0, 0),
			('expired', false, day, day, 0, 0),
			('ended tombstone', true, day, day, 0, now - 1),
			('dead waiter', true, day, day, 1, 0),
			('held', false, day, now + 600000000, 0, 0),
			('recent token', true, now - 80000000000, day, 0, 0),
			('tombstone', true, day, day, 0, now + 600000000),
			('waiter', true, day, day, 2, 0)
		) AS v (key, released, block_end, expires_at, waiting, flagged_until)`)
	do(moments + `INSERT INTO belugalock.waiter SELECT 'n', key, ticket, ticket::text, alive_until, 1, '', '{}' FROM m, LATERAL (VALUES
			('dead waiter', 1, day), ('waiter', 2, day), ('waiter', 3, now + 600000000)) AS v (key, ticket, alive_until)`)
	do(moments + `INSERT INTO belugalock.tomb SELECT 'n', key, 'b', until FROM m, LATERAL (VALUES
			('ended tombstone', now - 1), ('tombstone', now + 600000000)) AS v (key, until)`)
	do("INSERT INTO belugalock.lease (namespace, key) SELECT 'page', i::text FROM generate_series(1, 1500) AS i")

	// An operator has locked the tombstones. The sweep must not keep its rows of lease locked.
	stranger, err := pool.Begin(context.Background())
	must(t, err)
	defer func() { _ = stranger.Rollback(context.Background()) }()
	must(t, second(stranger.Exec(context.Background(), "LOCK TABLE belugalock.tomb IN SHARE MODE")))
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	s.sweepPage(ctx)
	if ctx.Err() != nil {
		t.Error("a sweep keeps its rows of lease locked while it waits for a tombstone")
	}
	cancel()
	must(t, stranger.Rollback(context.Background()))

	pages, deleted := 1, s.sweepPage(context.Background())
	for ; *s.sweepFrom.Load() != (driver.Name{}); pages++ {
		deleted += s.sweepPage(context.Background())
	}
	if pages != 2 || deleted != 1504 {
		t.Errorf("%d pages deleted %d names, want 2 and 1504", pages, deleted)
	}
	if names := do("SELECT string_agg(key || ' ' || waiting, ', ' ORDER BY key) FROM belugalock.lease"); names !=
		"held 0, recent token 0, tombstone 0, waiter 1" {
		t.Errorf("left are: %s", names)
	}
	if rows := do("SELECT (SELECT count(*) FROM belugalock.waiter) + (SELECT count(*) FROM belugalock.tomb)"); rows != "2" {
		t.Errorf("%s waiters and tombstones are left, want 2", rows)
	}
}

// The first page begins after the name of the first call. An error does not move the second one.
func TestSweep_L_place(t *testing.T) {
	t.Parallel()
	db, _ := migratedDB(t, "")
	const rows = "INSERT INTO belugalock.lease (namespace, key) SELECT 'n', i::text FROM generate_series(1000, 3999) AS i"
	must(t, second(db.Do(rows)))
	s := opened(t, db.URL())
	for _, key := range []string{"1499", "1999"} {
		req := driver.ReleaseRequest{Name: driver.Name{Namespace: "n", Key: key}, Owner: "a"}
		must(t, second(s.Release(t.Context(), req)))
	}
	s.sweepPage(t.Context())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.sweepPage(ended)
	s.sweepPage(t.Context())
	left, err := db.Do("SELECT min(key) || ' ' || max(key) || ' ' || count(*) FROM belugalock.lease")
	if left != "1000 3999 1000" || err != nil {
		t.Errorf("left are %s, %v; want 1000 to 1499 and 3500 to 3999", left, err)
	}
}

// A server that does not answer keeps the sweep for seconds, and no longer.
func TestSweep_L_silentServer_ends(t *testing.T) {
	t.Parallel()
	db, _ := migratedDB(t, "")
	server := servers.SharedPostgres(t).Addr()
	proxy := faultnet.New(t, server)
	s := opened(t, strings.Replace(db.URL(), server, proxy.Addr(), 1))
	held := proxy.HoldRequests(faultnet.Containing("sweep_v1"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*sweepLimit)
	defer cancel()
	s.sweepPage(ctx)
	if ctx.Err() != nil {
		t.Error("a sweep keeps the connection of a silent server")
	}
	held.Release()
}

// The first sweeps of many drivers are spread over a minute. Programs that live for seconds sweep, too.
func TestSweep_L_firstPage_withinAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, sweeps := time.Now(), make(chan time.Duration, 1000)
		config, _, err := postgres.ParseURL("postgres://app@127.0.0.1:1/db?sslmode=disable")
		must(t, err)
		config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			sweeps <- time.Since(start)
			return nil, errors.New("no server")
		}
		const drivers = 60
		for range drivers {
			s, err := newService(config, postgres.Schema{Parts: []postgres.Part{lockPart}})
			must(t, err)
			defer func() { _ = s.Close() }()
		}
		time.Sleep(sweepEvery)
		synctest.Wait()
		var first []time.Duration
		for range drivers {
			first = append(first, <-sweeps)
		}
		earliest, latest := slices.Min(first), slices.Max(first)
		if earliest > sweepEvery/3 || latest < sweepEvery*2/3 || latest > sweepEvery {
			t.Errorf("the first sweeps of %d drivers begin from %s to %s after their start", drivers, earliest, latest)
		}
	})
}
