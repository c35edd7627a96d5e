package lockurl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpen(t *testing.T) {
	server := testservers.StartRedis(t, "--requirepass", "p@ss/word")
	for url, backend := range map[string]string{
		"mem://": "memory",
		"redis://:p%40ss%2Fword@" + server.Addr() + "/2?read_timeout=1s": "redis",
	} {
		l, err := lockurl.Open(t.Context(), url, nil)
		if err != nil {
			t.Errorf("%s: %v", backend, err)
			continue
		}
		if l.Backend() != backend {
			t.Errorf("backend %q, want %q", l.Backend(), backend)
		}
		if err := l.Do(t.Context(), "key", func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s: Do: %v", backend, err)
		}
		if err := l.Close(t.Context()); err != nil { // goleak sees whether the client is closed, too
			t.Errorf("%s: Close: %v", backend, err)
		}
	}
}

func TestOpen_refusesBadURLs(t *testing.T) {
	for name, url := range map[string]string{
		"empty":              "",
		"no scheme":          "localhost:6379",
		"unknown scheme":     "etcd://localhost",
		"mem with a host":    "mem://localhost",
		"bad port":           "redis://:s3cret@localhost:port",
		"password with /":    "redis://:s3/cret@localhost:6379",
		"password with %":    "redis://:s3%cret@localhost:6379",
		"database":           "redis://:s3cret@localhost:6379/one",
		"slash and database": "redis://u:12/s3cret@localhost/0",
		"unknown option":     "redis://:s3cret@localhost:6379?pool=1",
		"bad option":         "redis://:s3cret@localhost:6379?pool_size=many",
	} {
		l, err := lockurl.Open(t.Context(), url, nil)
		if l != nil || !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%s: %v, %v, want ErrInvalidOption", name, l, err)
			continue
		}
		for _, secret := range []string{"s3cret", "s3", "cret"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the text shows the password: %v", name, err)
			}
		}
	}
	if _, err := lockurl.Open(t.Context(), "redis://localhost", &distlock.Options{TTL: time.Millisecond}); !errors.Is(err, distlock.ErrInvalidOption) {
		t.Errorf("bad options: %v", err)
	}
}

func TestOpen_noServerShowsAtTheFirstOperation(t *testing.T) {
	l, err := lockurl.Open(t.Context(), "redis://:s3cret@127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	if _, err := l.TryAcquire(t.Context(), "key"); !errors.Is(err, distlock.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("TryAcquire: %v", err)
	}
}
