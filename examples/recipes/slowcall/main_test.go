package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

// api takes its time for each call and counts the calls under way.
type api struct {
	*httptest.Server
	now, aborted atomic.Int64
	twice        atomic.Bool // two calls at the same moment
	began        chan struct{}
	takes        time.Duration
}

func startAPI(t *testing.T, takes time.Duration) *api {
	a := &api{began: make(chan struct{}, 10), takes: takes}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *api) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the server notices an aborted request after its body
	if a.now.Add(1) > 1 {
		a.twice.Store(true)
	}
	defer a.now.Add(-1)
	a.began <- struct{}{}
	select {
	case <-time.After(a.takes):
	case <-r.Context().Done():
		a.aborted.Add(1)
	}
}

func (a *api) await(t *testing.T) {
	t.Helper()
	select {
	case <-a.began:
	case <-time.After(30 * time.Second):
		t.Fatal("no call reaches the API")
	}
}

const ttl = 2 * time.Second

func instance(t *testing.T, url string, a *api) *recipetest.Process {
	return recipetest.Start(t, "-lock", url, "-api", a.URL, "-report", "17", "-ttl", ttl.String())
}

func TestSlowCall_longerThanTTL_notTwiceAtOnce(t *testing.T) {
	recipetest.EachBackend(t, func(t *testing.T, lock, _ string) {
		a := startAPI(t, 2*ttl)
		instances := []*recipetest.Process{instance(t, lock, a), instance(t, lock, a)}
		for _, p := range instances {
			p.Await("report 17: stored under token")
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
		if a.twice.Load() {
			t.Error("two calls at once")
		}
	})
}

func TestSlowCall_crashedInstance_nextCalls(t *testing.T) {
	recipetest.EachBackend(t, func(t *testing.T, lock, _ string) {
		a := startAPI(t, time.Minute)
		first := instance(t, lock, a)
		a.await(t)
		instance(t, lock, a)
		if err := first.Kill(); err != nil {
			t.Fatal(err)
		}
		a.await(t)
	})
}

func TestSlowCall_lostLease_callAborted(t *testing.T) {
	db, a := servers.SharedRedis(t), startAPI(t, time.Minute)
	p := instance(t, db.URL(), a)
	a.await(t)
	if _, err := db.Do("FLUSHDB"); err != nil {
		t.Fatal(err)
	}
	servers.Await(t, 30*time.Second, "the call is aborted", func() bool { return a.aborted.Load() == 1 })
	p.Await("distlock: ")
	if err := p.Wait(); err == nil {
		t.Error("an instance that lost its lease ends without an error")
	}
}
