package lockurl_test

import (
	"context"
	"errors"
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(testservers.Sharing{M: m})
}

func TestOpen(t *testing.T) {
	server := testservers.StartRedis(t, "--requirepass", "p@ss/word")
	for url, backend := range map[string]string{
		"mem://": "memory",
		"redis://:p%40ss%2Fword@" + server.Addr() + "/2?read_timeout=1s": "redis",
		"valkey://default:p%40ss%2Fword@" + server.Addr() + "?db=2":      "redis",
	} {
		l, err := lockurl.Open(t.Context(), url, nil)
		if err != nil {
			t.Errorf("%s: %v", backend, err)
			continue
		}
		if fencing.Backend(l) != backend {
			t.Errorf("backend %q, want %q", fencing.Backend(l), backend)
		}
		if err := l.Do(t.Context(), "key", func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s: Do: %v", backend, err)
		}
		if err := l.Close(t.Context()); err != nil { // goleak checks that the client is closed
			t.Errorf("%s: Close: %v", backend, err)
		}
	}
}

var refused = map[string]struct{ url, text string }{
	"empty":                 {"", "it has no scheme: write one of mem:// redis:// "},
	"no scheme":             {"localhost:6379", "it has no scheme: write one of mem:// redis:// "},
	"scheme in a parameter": {"u:s3cret@localhost?url=redis://", "it has no scheme"},
	"unknown scheme":        {"etcd://localhost", `the scheme "etcd" is not known: write one of mem:// redis:// `},
	"unknown kind":          {"redis+ring://localhost", `the scheme "redis+ring" is not known`},
	"unknown, of Valkey":    {"valkey+ring://localhost", `the scheme "valkey+ring" is not known`},
	"mem with a host":       {"mem://localhost", "mem:// takes nothing after it"},
	// One error of each kind of Redis URL. redislock tests the others.
	"bad port": {"redis://:s3cret@localhost:port",
		`host 1 of 1 has the port "port": a port must be a number from 1 to 65535`},
	"Sentinel without name": {"redis+sentinel://:s3cret@localhost",
		"it has no master_name: add ?master_name=NAME"},
	"Cluster with a database": {"redis+cluster://:s3cret@localhost:6379/1",
		"a Cluster has no databases to choose from: leave the database out"},
}

func TestOpen_refusesBadURLs(t *testing.T) {
	for name, bad := range refused {
		locker, err := lockurl.Open(t.Context(), bad.url, nil)
		if locker != nil {
			t.Errorf("%s: accepted", name)
			_ = locker.Close(t.Context())
			continue
		}
		checkRefusal(t, name, err, bad.text)
	}
	_, err := lockurl.Open(t.Context(), "redis://localhost", &distlock.Options{TTL: time.Millisecond})
	if !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("bad options: %v", err)
	}
}

func checkRefusal(t *testing.T, name string, err error, text string) {
	t.Helper()
	if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "lock URL: ") ||
		!strings.Contains(err.Error(), text) {
		t.Errorf("%s: the error is %v, want ErrInvalidOption and the text %q", name, err, text)
		return
	}
	for _, secret := range []string{"s3", "cret", "12?", "12/", "12#"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the text shows a part of the password: %v", name, err)
		}
	}
}

func TestOpen_noServer_firstOperationFails(t *testing.T) {
	for _, rawURL := range []string{
		"redis://:s3cret@127.0.0.1:1",
		"redis+sentinel://:s3cret@127.0.0.1:1,127.0.0.1:2?master_name=m&sentinel_password=cret",
		"redis+cluster://:s3cret@127.0.0.1:1,127.0.0.1:2",
	} {
		t.Run(rawURL, func(t *testing.T) {
			t.Parallel()
			l, err := lockurl.Open(t.Context(), rawURL, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close(t.Context())
			_, err = l.TryAcquire(t.Context(), "key")
			if !errors.Is(err, distlock.ErrUnavailable) || strings.Contains(err.Error(), "cret") {
				t.Errorf("TryAcquire: %v", err)
			}
		})
	}
}

// The socket is that of the parameters: its file, its user and its database.
func TestOpen_unixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis @1.sock")
	testservers.StartRedis(t, "--requirepass", "p@ss/word", "--unixsocket", socket)
	url := "unix://default:p%40ss%2Fword@" + strings.NewReplacer(" ", "%20", "@", "%40").Replace(socket) + "?db=2"
	checkHandoff(t, open(t, url), open(t, url))
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Password: "p@ss/word", DB: 2})
	defer admin.Close()
	lease := acquire(t, open(t, url))
	if keys, err := admin.Keys(t.Context(), "distlock:{key}:*").Result(); err != nil || len(keys) == 0 {
		t.Errorf("database 2 has the keys %q, %v", keys, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A Locker that was opened by URL queues its waiters at the server, too.
func TestOpen_waitsInQueue(t *testing.T) {
	t.Parallel()
	url := testservers.SharedRedis(t).URL()
	one, other := open(t, url), open(t, url)
	lease := acquire(t, one)
	got := make(chan error)
	go func() {
		next, err := other.Acquire(t.Context(), "key")
		if err == nil {
			err = next.Release(t.Context())
		}
		got <- err
	}()
	awaitWaiter(t, one)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
