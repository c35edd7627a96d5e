package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// A Save that was never sent has a known outcome: nothing is written.
func TestSave_C_noServer_nothingWritten(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	r := newRig(t, redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true}, &distlock.Options{Wait: 3 * time.Second}, nil)
	must(t, r.memory.Save(t.Context(), "q", "a"))
	server.Kill()
	_ = r.client.Ping(t.Context()).Err() // closes the broken connection
	err := r.memory.Save(t.Context(), "q2", "a2")
	if !errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrOutcomeUnknown) {
		t.Errorf("Save: %v", err)
	}
}

// A Save outside a turn asks for the lock first. If Redis does not answer, nothing was written.
// Without a cancelled or expired ctx, no error is that of a context.
func TestSave_C_silentRedis_nothingWritten(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]struct {
		wait    time.Duration
		timeout time.Duration
		ctxOn   bool
	}{
		"default wait":          {0, 0, false},
		"wait 500ms, ctx on":    {500 * time.Millisecond, 0, true},
		"deadline of ctx 500ms": {0, 500 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			r := newRig(t, redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: with.ctxOn}, &distlock.Options{Wait: with.wait}, nil)
			must(t, r.memory.Save(t.Context(), "q", "a"))
			server.Pause()
			defer server.Resume()
			ctx, cancel := context.WithCancel(t.Context())
			late := with.timeout > 0
			if late {
				ctx, cancel = context.WithTimeout(t.Context(), with.timeout)
			}
			defer cancel()
			err := r.memory.Save(ctx, "q2", "a2")
			if errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrUnavailable) == late ||
				errors.Is(err, context.DeadlineExceeded) != late || errors.Is(err, context.Canceled) {
				t.Errorf("Save: %v", err)
			}
		})
	}
}

// A very late copy of a Save outside a turn is refused: another copy was acknowledged more than a
// TTL ago.
func TestStore_O_veryLatePacket_refused(t *testing.T) {
	t.Parallel()
	for _, clear := range []bool{false, true} {
		t.Run(fmt.Sprint("clear=", clear), func(t *testing.T) {
			t.Parallel()
			proxy := faultnet.New(t, servers.SharedServer().Addr())
			r := newRig(t, redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Second / 2}, &distlock.Options{TTL: 2 * time.Second}, nil)
			must(t, r.memory.Save(t.Context(), "before", "re: before"))
			held := proxy.HoldRequests(faultnet.First(1, faultnet.Containing("re: late")))
			if err := r.memory.Save(t.Context(), "late", "re: late"); err != nil {
				t.Fatal("Save:", err)
			}
			want := []string{"before", "re: before", "late", "re: late"}
			if got := r.history(t); !slices.Equal(got, want) {
				t.Fatalf("acknowledged: %q", got)
			}
			if clear {
				must(t, r.memory.Clear(t.Context()))
				want = []string{}
			}
			time.Sleep(2200 * time.Millisecond)
			held.Release()
			time.Sleep(100 * time.Millisecond)
			if got := r.history(t); !slices.Equal(got, want) {
				t.Errorf("the history is %q, want %q", got, want)
			}
		})
	}
}

// The request of a Save outside a turn arrives late. Its caller has an error or has left, and
// another instance has cleared the session.
func TestSave_O_latePacket_clearStands(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]bool{"the caller waits": false, "the caller leaves early": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := faultnet.New(t, servers.SharedServer().Addr())
			r := newRig(t, redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Second, MaxRetries: -1}, nil, nil)
			must(t, r.client.Ping(t.Context()).Err())
			other := newRig(t, redis.Options{}, nil, nil)
			must(t, other.memory.Save(t.Context(), "before", "re: before"))
			late := faultnet.Containing("re: late")
			packet := proxy.HoldRequests(late)
			proxy.HoldRequests(func(b []byte) bool { return bytes.Contains(b, []byte(r.log())) && !late(b) })
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			saved := make(chan error, 1)
			go func() { saved <- r.memory.Save(ctx, "late", "re: late") }()
			packet.Wait(1)
			if leaves {
				leave()
			}
			if err := <-saved; !errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, context.Canceled) != leaves {
				t.Fatalf("Save: %v", err)
			}
			must(t, other.memory.Clear(t.Context()))
			packet.Release()
			must(t, r.client.Ping(t.Context()).Err())
			if got := other.history(t); len(got) != 0 {
				t.Errorf("after the Clear there is %q", got)
			}
		})
	}
}

// A SaveOnce with a known ID succeeds although Redis is full, and shows its token: a stale Save is refused.
func TestStore_S2_knownID_fullMemory(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	old, next := newRig(t, redis.Options{Addr: server.Addr()}, nil, nil), newRig(t, redis.Options{Addr: server.Addr()}, nil, nil)
	must(t, old.memory.SaveOnce(t.Context(), "id", "q", "a"))
	err := old.memory.Turn(t.Context(), func(ctx context.Context) error {
		stale := context.WithoutCancel(ctx)
		old.expire(ctx) // the lease has ended, and its process has not noticed
		must(t, next.memory.Turn(t.Context(), func(ctx context.Context) error {
			must(t, next.client.ConfigSet(ctx, "maxmemory", "1").Err())
			if err := next.memory.SaveOnce(ctx, "id", "q", "a"); err != nil {
				t.Errorf("the repeated Save: %v", err)
			}
			must(t, next.client.ConfigSet(ctx, "maxmemory", "0").Err())
			if err := old.store.Save(stale, "stale", "stale"); err == nil {
				t.Errorf("a stale Save was accepted: %q", next.history(t))
			}
			return nil
		}))
		return nil
	})
	t.Log("Turn:", err)
}

// splitting is a connection that calls between the first and the second XRANGE of a pipeline.
type splitting struct {
	net.Conn
	between *atomic.Pointer[func()]
}

func (s splitting) Write(b []byte) (int, error) {
	word := []byte("xrange")
	i := bytes.Index(b, word)
	if f := s.between.Load(); f != nil && i >= 0 {
		if j := bytes.Index(b[i+6:], word); j >= 0 {
			at := bytes.LastIndexByte(b[:i+6+j], '*')
			n, err := s.Conn.Write(b[:at])
			if err != nil {
				return n, err
			}
			(*f)()
			m, err := s.Conn.Write(b[at:])
			return n + m, err
		}
	}
	return s.Conn.Write(b)
}

// A Load does not show exchanges from before a Clear together with exchanges from after it.
func TestLoad_O_showsOneMoment(t *testing.T) {
	t.Parallel()
	var between atomic.Pointer[func()]
	r := newRig(t, redis.Options{Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return splitting{c, &between}, err
	}}, nil, nil)
	other := newRig(t, redis.Options{}, nil, nil)
	must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
		for i := range 2100 {
			if err := r.memory.Save(ctx, fmt.Sprint(i), ""); err != nil {
				return err
			}
		}
		return nil
	}))
	var once sync.Once
	f := func() {
		once.Do(func() {
			time.Sleep(20 * time.Millisecond)
			must(t, other.memory.Clear(t.Context()))
			must(t, other.memory.Save(t.Context(), "after", "Clear"))
		})
	}
	between.Store(&f)
	got := r.history(t)
	if n := len(got); n > 2 && slices.Contains(got, "after") {
		t.Errorf("%d messages from before the Clear, and %q after them", n-2, got[n-2:])
	}
}

// With the last token used up, a Save is refused or can be loaded.
func TestSave_tokensUsedUp_nothingUnreadable(t *testing.T) {
	t.Parallel()
	r := newRig(t, redis.Options{}, nil, nil)
	must(t, r.client.Set(t.Context(), r.lock(), "b2r."+strings.Repeat("a", 64)+strings.Repeat("9007199254740991", 2)+"00086400000", time.Hour).Err())
	if err := r.memory.Save(t.Context(), "q", "a"); err != nil {
		t.Log("refused, as Turn would be: ", err)
		return
	}
	if got, err := r.store.Load(t.Context(), ""); err != nil {
		t.Errorf("acknowledged, but Load: %q, %v", got, err)
	}
}

// An error after the write of an entry does not cause a second entry.
func TestSave_O_errorAfterWrite_oneEntry(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	if _, err := server.Do("ACL", "SETUSER", "default", "-pexpire"); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, redis.Options{Addr: server.Addr()}, nil, &sessionstore.Retention{IdleTTL: time.Hour})
	err := r.memory.Save(t.Context(), "q", "a")
	t.Log("Save:", err)
	if got := r.history(t); len(got) > 2 {
		t.Errorf("one Save is there more than once: %q", got)
	}
}

// After a SaveOnce with a known ID, a stale lease is still refused.
func TestStore_S2_knownID_staleLease(t *testing.T) {
	t.Parallel()
	old, next := newRig(t, redis.Options{}, nil, nil), newRig(t, redis.Options{}, nil, nil)
	must(t, old.memory.SaveOnce(t.Context(), "id", "q", "a"))
	err := old.memory.Turn(t.Context(), func(ctx context.Context) error {
		old.expire(ctx)
		must(t, next.memory.Save(t.Context(), "q2", "a2"))
		must(t, next.memory.Turn(t.Context(), next.opens))
		if err := old.memory.SaveOnce(ctx, "id", "q", "a"); err != nil {
			t.Log("Save:", err)
		}
		if got, err := old.memory.Load(ctx, ""); err == nil {
			t.Errorf("the first Load under the stale lease was not refused: %q", got)
		}
		return nil
	})
	t.Log("Turn:", err)
}

// Three clients save in all ways at once, leave at any time, and lose answers. Acknowledged
// exchanges are stored once, and no exchange twice.
func TestStore_O_randomFailures(t *testing.T) {
	t.Parallel()
	proxy := faultnet.New(t, servers.SharedServer().Addr())
	var n atomic.Int64
	proxy.DropReplies(func(b []byte) bool { return bytes.Contains(b, []byte("{"+t.Name()+"}:")) && n.Add(1)%13 == 0 })
	var mu sync.Mutex
	acked, unknown := map[string]int{}, map[string]bool{}
	var wg sync.WaitGroup
	end := time.Now().Add(5 * time.Second)
	for p := range 3 {
		r := newRig(t, redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: p == 0, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 3 * time.Millisecond},
			&distlock.Options{Wait: -1, TTL: time.Second}, nil)
		for g := range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := 0; time.Now().Before(end); i++ {
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
					if i%11 == 0 {
						time.AfterFunc(time.Duration(i%7)*time.Millisecond, cancel)
					}
					note := func(name string, err error) error {
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							acked[name]++
						} else {
							unknown[name] = true
						}
						return nil
					}
					name := fmt.Sprintf("%d-%d-%d", p, g, i)
					switch i % 4 {
					case 0, 1:
						_ = note(name, r.memory.Save(ctx, name, ""))
					case 2:
						for range 3 {
							if r.memory.SaveOnce(ctx, name, name, "") == nil {
								_ = note(name, nil)
								break
							}
							_ = note(name, errors.New(""))
						}
					default:
						_ = r.memory.Turn(ctx, func(ctx context.Context) error {
							if i%8 == 3 {
								_, _ = r.memory.Load(ctx, "")
							}
							_ = note(name+"a", r.memory.Save(ctx, name+"a", ""))
							return note(name+"b", r.memory.SaveOnce(ctx, name+"b", name+"b", ""))
						})
					}
					cancel()
				}
			}()
		}
	}
	wg.Wait()
	other := newRig(t, redis.Options{}, nil, nil)
	count := map[string]int{}
	for i, m := range other.history(t) {
		if i%2 == 0 {
			count[m]++
		}
	}
	for name := range acked {
		if count[name] != 1 {
			t.Errorf("acknowledged %s is there %d times", name, count[name])
		}
	}
	for name, c := range count {
		if c > 1 || !unknown[name] && acked[name] == 0 {
			t.Errorf("%s is there %d times", name, c)
		}
	}
	t.Logf("%d acknowledged, %d unknown, %d there", len(acked), len(unknown), len(count))
}

// While a slot of a Cluster moves, its master rejects scripts. A turn that holds its lock waits for
// the end of the move.
func TestStore_slotMoves_onCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartCluster(t)
	r := newRigOver(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true}), nil, nil)
	memory := r.memory
	must(t, memory.Save(t.Context(), "before", ""))
	for name, do := range map[string]func(ctx context.Context) error{
		"SaveOnce": func(ctx context.Context) error { return memory.SaveOnce(ctx, "id", "q", "a") },
		"Load":     r.opens,
		"Save":     func(ctx context.Context) error { return memory.Save(ctx, "q", "a") },
	} {
		err := memory.Turn(t.Context(), func(ctx context.Context) error {
			finish := cluster.BeginMove(r.log(), r.log())
			defer finish()
			timer := time.AfterFunc(time.Second, finish)
			defer timer.Stop()
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			start := time.Now()
			if err := do(ctx); err != nil {
				t.Errorf("%s: after %s of 20 s: %v", name, time.Since(start).Round(time.Millisecond), err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: Turn: %v", name, err)
		}
	}
}

// A read-only replica may lag behind its master. By its word, no session is gone, no lock has another owner,
// and no turn ID is known: its session may be deleted.
func TestStore_C_laggingReplica_saysReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, redis.Options{}, nil, nil)
	lease, err := r.locker.Acquire(t.Context(), r.key)
	must(t, err)
	replica := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	defer client.Close()
	d, err := redisstore.NewDriver(client, nil)
	must(t, err)

	stored := lockedmemory.Place{Fence: lease.Fence(), N: 1}
	write := storedriver.Write{N: 2, Op: strings.Repeat("0", 32)}
	write.Access = storedriver.Access{Session: r.key, Lease: lease, Fence: stored.Fence, HistoryUpTo: stored}
	old := write
	old.Fence, old.HistoryUpTo = stored.Fence-(24*time.Hour).Microseconds(), lockedmemory.Place{}
	content := storedriver.Content{Messages: [][]byte{[]byte("q"), []byte("a")}, ID: "question"}
	save := func(w storedriver.Write) (storedriver.Verdict, error) {
		return d.Append(t.Context(), storedriver.Append{Write: w, Content: content})
	}
	saveOther := func(w storedriver.Write) (storedriver.Verdict, error) {
		other := content
		other.Digest[0] = 1
		return d.Append(t.Context(), storedriver.Append{Write: w, Content: other})
	}
	replace := func(w storedriver.Write) (storedriver.Verdict, error) {
		return d.Replace(t.Context(), storedriver.Replace{Write: w, From: stored, To: stored})
	}
	edit := func(w storedriver.Write) (storedriver.Verdict, error) {
		return d.Replace(t.Context(), storedriver.Replace{Write: w, From: stored, To: stored,
			New: []storedriver.Entry{{Place: stored, Messages: content.Messages}}})
	}
	unnamed := func(w storedriver.Write) (storedriver.Verdict, error) {
		w.FirstAccess = true
		return d.Append(t.Context(), storedriver.Append{Write: w, Content: storedriver.Content{Messages: content.Messages}})
	}
	load := func(w storedriver.Write) (storedriver.Verdict, error) {
		w.FirstAccess = true
		page, err := d.Read(t.Context(), storedriver.Read{Access: w.Access, Limit: 1})
		return page.Verdict, err
	}
	known := write
	known.Session = r.key + " with an exchange"
	known.HistoryUpTo = lockedmemory.Place{}
	v, err := save(known)
	must(t, err)
	if v.Outcome != storedriver.Done {
		t.Fatalf("Save before the failover: outcome %d", v.Outcome)
	}
	if _, err := replica.Do("REPLICAOF", "127.0.0.1", "1"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		call  func(storedriver.Write) (storedriver.Verdict, error)
		write storedriver.Write
	}{
		{"SaveOnce with a known ID", save, known},
		{"SaveOnce of other messages with a known ID", saveOther, known},
		{"Save after another Save", save, write},
		{"Save under an old token", save, old},
		{"Replace", replace, write},
		{"Replace by another exchange", edit, write},
		{"first Save after another one", unnamed, write},
		{"first Save under an old token", unnamed, old},
		{"Load under an old token", load, old},
	} {
		v, err := c.call(c.write)
		if !errors.Is(err, driver.ErrTemporary) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: outcome %d, %v; want READONLY", c.what, v.Outcome, err)
		}
	}
}
