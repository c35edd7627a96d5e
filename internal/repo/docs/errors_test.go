package docs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
)

// Every error text of the page is one that the library prints in a case below, and every case is on the page.
func TestErrors_textsOfTheLibrary(t *testing.T) {
	t.Parallel()
	cases := maps.Clone(troubles)
	for name, provoke := range storeTroubles {
		cases["store: "+name] = provoke
	}
	textsMatch(t, cases, ErrorTexts.blocks(t, "text"))
}

// elsewhere is in the texts that only Sentinels and Clusters bring about.
var elsewhere = regexp.MustCompile("no Sentinel names|MOVED")

func pattern(text string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".+") + "$")
}

// textsMatch checks that each line of the blocks is the error of a case, and each case is in the blocks.
func textsMatch(t *testing.T, cases map[string]func(t *testing.T) error, blocks []block) {
	t.Helper()
	var mu sync.Mutex
	printed := map[string]string{}
	t.Run("cases", func(t *testing.T) {
		for name, provoke := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				err := provoke(t)
				if err == nil {
					t.Fatal("no error")
				}
				mu.Lock()
				defer mu.Unlock()
				printed[name] = err.Error()
			})
		}
	})

	inPage := map[string]bool{}
	for _, b := range blocks {
		for i, text := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
			found := elsewhere.MatchString(text)
			for name, printed := range printed {
				if pattern(text).MatchString(printed) {
					found, inPage[name] = true, true
				}
			}
			if !found {
				t.Errorf("%s:%d: nothing here prints %q", b.page, b.line+i, text)
			}
		}
	}
	for name, text := range printed {
		if !inPage[name] {
			t.Errorf("%s: the page does not have %q", name, text)
		}
	}
}

var troubles = map[string]func(t *testing.T) error{
	"busy": func(t *testing.T) error {
		locker, _ := heldBySomebody(t)
		_, err := locker.TryAcquire(t.Context(), "session")
		return err
	},
	"busy, with retries": func(t *testing.T) error {
		locker, _ := heldBySomebody(t)
		return locker.NewLock("session", 0).AcquireWithRetry(t.Context(), 3, time.Millisecond)
	},
	"busy, and the line is full": func(t *testing.T) error {
		shared := memlock.NewDriver()
		locker, err := distlock.New(shared, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close(context.Background()) })
		for i := range driver.MaxQueue + 1 { // the first has the lock
			_, err := shared.Acquire(t.Context(), driver.AcquireRequest{
				Name: driver.Name{Namespace: fencing.Options(locker).Namespace, Key: "session"}, Owner: fmt.Sprintf("%032x", i),
				TTL: time.Minute, Alive: time.Minute, Seq: 1, Holder: "somebody",
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return acquireError(t, locker)
	},
	"busy with itself": func(t *testing.T) error {
		locker, lease := heldBySomebody(t)
		_, err := locker.Acquire(lease.Context(), "session")
		return err
	},
	"a turn's outer context": func(t *testing.T) error {
		memory := locked(t, inProcess(t, nil), lockedmemory.FixedKey("session"))
		return memory.Turn(t.Context(), func(context.Context) error { return memory.Clear(t.Context()) })
	},
	"not renewed": func(t *testing.T) error {
		lease := acquire(t, inProcess(t, shortLived()))
		<-lease.Context().Done()
		return lease.Err()
	},
	"removed by hand": func(t *testing.T) error {
		server := testservers.StartRedis(t)
		options := shortLived()
		options.TTL, options.RenewEvery = 30*time.Second, 20*time.Millisecond
		lease := acquire(t, open(t, server.URL(), options))
		if _, err := server.Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		return lease.Err()
	},
	"lost during a Save": func(t *testing.T) error {
		memory := locked(t, inProcess(t, shortLived()), lockedmemory.FixedKey("session"))
		return memory.Save(t.Context(), "question", "answer") // the inner one returns when it is cancelled
	},
	"released, but never held": func(t *testing.T) error {
		return inProcess(t, nil).NewLock("session", 0).Release(t.Context())
	},
	"used after release": func(t *testing.T) error {
		lease := acquire(t, inProcess(t, nil))
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		return lease.Extend(t.Context(), time.Minute)
	},
	"no server": func(t *testing.T) error {
		return acquireError(t, open(t, "redis://127.0.0.1:1?max_retries=-1", nil)) // no port of a server
	},
	"a server that hangs": func(t *testing.T) error {
		server := testservers.StartRedis(t)
		locker := open(t, server.URL(), &distlock.Options{Wait: 50 * time.Millisecond})
		server.Pause()
		defer server.Resume()
		return acquireError(t, locker)
	},
	"a replica": onRedis("", nil, "--replicaof", "127.0.0.1", "1"),
	"a Cluster with slots missing": func(t *testing.T) error {
		server := testservers.StartRedis(t, "--cluster-enabled", "yes")
		slot, err := server.Do("CLUSTER", "KEYSLOT", "{session}")
		if err == nil {
			_, err = server.Do("CLUSTER", "ADDSLOTS", slot)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tryAcquireError(t, open(t, "redis+cluster://"+server.Addr(), nil))
	},
	"a master without replicas": onRedis("", nil, "--min-replicas-to-write", "1"),
	"no password":               onRedis("", nil, "--requirepass", "secret"),
	"wrong password":            onRedis(":wrong@", nil, "--requirepass", "secret"),
	"no rights":                 onRedis("agent:secret@", []string{"ACL", "SETUSER", "agent", "on", ">secret", "~distlock:*", "+get"}),
	"data of another program":   onRedis("", []string{"SET", "distlock:{session}:lock", "mine"}),
	"no session": func(t *testing.T) error {
		return locked(t, inProcess(t, nil), lockedmemory.FixedKey("")).Save(t.Context(), "question", "answer")
	},
	"a key function that fails": func(t *testing.T) error {
		key := func(context.Context) (string, error) { return "", errors.New("no session in the context") }
		return locked(t, inProcess(t, nil), key).Save(t.Context(), "question", "answer")
	},
	"a key with a line break": func(t *testing.T) error {
		_, err := inProcess(t, nil).Acquire(t.Context(), "session\n")
		return err
	},
	"a TTL without unit": func(t *testing.T) error {
		_, err := memlock.New(&distlock.Options{TTL: 30})
		return err
	},
	"a URL without scheme":               opening("localhost:6379"),
	"a Sentinel without a master's name": opening("redis+sentinel://localhost"),
	"a password with a slash":            opening("redis://:s3/cret@localhost"),
	"a Ring": func(t *testing.T) error {
		ring := redis.NewRing(&redis.RingOptions{})
		defer ring.Close()
		_, err := redislock.New(ring, nil)
		return err
	},
	"closed": func(t *testing.T) error {
		locker := inProcess(t, nil)
		if err := locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return acquireError(t, locker)
	},
	"too little time to close": func(t *testing.T) error {
		locker := inProcess(t, nil)
		lease := acquire(t, locker)
		began, end := make(chan struct{}), make(chan struct{})
		go lease.Guard(context.Background(), func(context.Context) error {
			close(began)
			<-end
			return nil
		})
		<-began
		defer close(end)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		return locker.Close(ctx)
	},
}

// shortLived are options under which a lease is soon lost.
func shortLived() *distlock.Options {
	return &distlock.Options{TTL: distlock.MinTTL, RenewEvery: -1}
}

func inProcess(t *testing.T, options *distlock.Options) *distlock.Locker {
	return open(t, "mem://", options)
}

func open(t *testing.T, url string, options *distlock.Options) *distlock.Locker {
	t.Helper()
	if options == nil {
		options = &distlock.Options{}
	}
	options.Logger = slog.New(slog.DiscardHandler)
	locker, err := lockurl.Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locker.Close(context.Background()) })
	return locker
}

func acquire(t *testing.T, locker *distlock.Locker) *distlock.Lease {
	t.Helper()
	lease, err := locker.Acquire(t.Context(), "session")
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func acquireError(t *testing.T, locker *distlock.Locker) error {
	_, err := locker.Acquire(t.Context(), "session")
	return err
}

// tryAcquireError is for errors that Acquire would wait out.
func tryAcquireError(t *testing.T, locker *distlock.Locker) error {
	_, err := locker.TryAcquire(t.Context(), "session")
	return err
}

// onRedis is for the errors of a user on a Redis with these arguments, after a command.
func onRedis(user string, setup []string, args ...string) func(t *testing.T) error {
	return func(t *testing.T) error {
		server := testservers.StartRedis(t, args...)
		if setup != nil {
			if _, err := server.Do(setup...); err != nil {
				t.Fatal(err)
			}
		}
		return tryAcquireError(t, open(t, "redis://"+user+server.Addr(), nil))
	}
}

func opening(url string) func(t *testing.T) error {
	return func(t *testing.T) error {
		_, err := lockurl.Open(t.Context(), url, nil)
		return err
	}
}

func heldBySomebody(t *testing.T) (*distlock.Locker, *distlock.Lease) {
	locker := inProcess(t, nil)
	return locker, acquire(t, locker)
}

func locked(t *testing.T, locker *distlock.Locker, key lockedmemory.KeyFunc) *lockedmemory.LockedMemory[string, string] {
	t.Helper()
	memory, err := lockedmemory.New(stuck{}, locker, key, &lockedmemory.Options{Wait: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return memory
}

// stuck is a memory whose Save lasts until its context is cancelled.
type stuck struct{}

func (stuck) Save(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}
func (stuck) Load(context.Context, string) ([]string, error)        { return nil, nil }
func (stuck) Search(context.Context, string, int) ([]string, error) { return nil, nil }
func (stuck) Clear(context.Context) error                           { return nil }
