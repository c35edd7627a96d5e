package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// entryUnder is an entry of a store under a token that the lock has not granted.
func entryUnder(log string, fence int64) redis.XAddArgs {
	return redis.XAddArgs{
		Stream: log, ID: fmt.Sprintf("%d-1", fence),
		Values: []string{"op", strings.Repeat("0", 32), "m", `"q"`, "m", `"a"`},
	}
}

// A token that only a damaged mark can demand is refused. The error says what to check, and nothing
// is written.
func TestSave_S2_damagedMarkIsInvalid(t *testing.T) {
	t.Parallel()
	year := time.Now().Add(driver.FloorAhead).UnixMicro()
	for name, mark := range map[string]int64{
		"a year": year + time.Hour.Microseconds(), "near 2^53": driver.MaxFence - driver.FenceBlock - 1, "2^53": driver.MaxFence,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRig(t)
			ctx := t.Context()
			entry := entryUnder(s.log(), mark)
			must(t, s.client.XAdd(ctx, &entry).Err())
			saves := func(ctx context.Context) error { return s.memory.Save(ctx, "next", "a") }
			for name, err := range map[string]error{
				"a Save": saves(ctx), "a turn that saves": s.memory.Turn(ctx, saves), "a turn that loads": s.memory.Turn(ctx, s.opens),
			} {
				if !errors.Is(err, distlock.ErrInvalidOption) || errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrUnavailable) ||
					!strings.Contains(err.Error(), "check the mark of the store") {
					t.Errorf("%s: %v, want ErrInvalidOption and what to check", name, err)
				}
			}
			if n := s.client.XLen(ctx, s.log()).Val(); n != 1 {
				t.Errorf("there are %d entries, want the damaged one alone", n)
			}
			lease, err := s.locker.Acquire(ctx, s.key)
			must(t, err)
			if lease.Fence() > year {
				t.Errorf("the next token is %d, more than a year ahead of the clock", lease.Fence())
			}
			must(t, lease.Release(ctx))
		})
	}
}

// The store keeps an entry of another program at the place of its own removed marker.
func TestMarks_foreignData_isKept(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	ctx := t.Context()
	must(t, s.memory.Turn(ctx, s.opens))
	place := strings.Split(s.client.Get(ctx, s.mark()).Val(), ":")[1]
	s.client.Del(ctx, s.log())
	foreign := redis.XAddArgs{Stream: s.log(), ID: place, Values: []string{"another", "program"}}
	must(t, s.client.XAdd(ctx, &foreign).Err())
	var broken *sessionstore.EntryError
	if err := s.memory.Turn(ctx, s.opens); !errors.As(err, &broken) || broken.Place.String() != place {
		t.Errorf("Load: %v, want the entry at %s to be reported", err, place)
	}
	if entries := s.client.XRange(ctx, foreign.Stream, place, place).Val(); len(entries) != 1 {
		t.Errorf("the entry of another program: %v", entries)
	}
}

// A mark of another program, or of a newer version of this library, refuses each call, and stays as it is.
// The history does, too.
func TestMarks_O_unknownForm_refusesEachCall(t *testing.T) {
	t.Parallel()
	s := newRig(t, &sessionstore.Retention{MaxExchanges: 2})
	ctx := t.Context()
	must(t, s.memory.Save(ctx, "q", "a"))
	must(t, s.memory.Save(ctx, "q2", "a2"))
	at := s.places(t)
	mark, edited := s.client.Get(ctx, s.mark()).Val(), exchange("edited")
	calls := map[string]func(context.Context) error{
		"Load":         s.opens,
		"Turn":         func(ctx context.Context) error { return s.memory.Turn(ctx, s.opens) },
		"Save":         func(ctx context.Context) error { return s.memory.Save(ctx, "q", "a") },
		"SaveOnce":     func(ctx context.Context) error { return s.memory.SaveOnce(ctx, "id", "q", "a") },
		"Answered":     func(ctx context.Context) error { _, _, err := s.memory.Answered(ctx, "id"); return err },
		"Clear":        s.memory.Clear,
		"Delete":       s.memory.Delete,
		"Replace":      func(ctx context.Context) error { return s.memory.Replace(ctx, at[0], at[0], edited) },
		"Replace none": func(ctx context.Context) error { return s.memory.Replace(ctx, at[0], at[0]) },
	}
	for text, put := range map[string][]any{
		"newer":           {"set", s.mark(), "2" + mark[1:]},
		"another form":    {"set", s.mark(), mark + ":more"},
		"another program": {"set", s.mark(), "foreign"},
		"WRONGTYPE":       {"rpush", s.mark(), "foreign"},
	} {
		must(t, s.client.Del(ctx, s.mark()).Err())
		must(t, s.client.Do(ctx, put...).Err())
		keys := func() (all []string) {
			for _, key := range []string{s.log(), s.mark(), s.stage(), "session:{" + s.key + "}:ids"} {
				all = append(all, s.client.Dump(ctx, key).Val())
			}
			return all
		}
		before := keys()
		for name, call := range calls {
			if err := call(ctx); !errors.Is(err, distlock.ErrRefused) ||
				(text == "newer" || text == "another form") != strings.Contains(err.Error(), "newer version of this library") {
				t.Errorf("%s, with a mark of %s: %v, want ErrRefused", name, text, err)
			}
			if !slices.Equal(keys(), before) {
				t.Errorf("%s, with a mark of %s, has written", name, text)
			}
		}
	}
}

type halving struct {
	net.Conn
	between *atomic.Pointer[func()]
	command string
}

// halved calls between, once, between a command and the XRANGE of a pipeline.
func halved(command string, between *atomic.Pointer[func()]) *redis.Options {
	return &redis.Options{Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return halving{c, between, command}, err
	}}
}

func (h halving) Write(b []byte) (int, error) {
	script, read := bytes.Index(b, []byte("\r\n"+h.command+"\r\n")), bytes.Index(b, []byte("xrange"))
	f := h.between.Load()
	if f == nil || script < 0 || read < 0 || !h.between.CompareAndSwap(f, nil) {
		return h.Conn.Write(b)
	}
	at := bytes.LastIndexByte(b[:max(script, read)], '*')
	n, err := h.Conn.Write(b[:at])
	if err != nil {
		return n, err
	}
	(*f)()
	m, err := h.Conn.Write(b[at:])
	return n + m, err
}

// The write of an older holder during the first Load of a new holder is refused, or is in the
// loaded history.
func TestLoad_S2_tokenBeforeRead(t *testing.T) {
	t.Parallel()
	var between atomic.Pointer[func()]
	r := newRig(t, halved("evalsha", &between))
	must(t, r.memory.Save(t.Context(), "q", "a"))
	must(t, r.memory.Turn(t.Context(), r.opens)) // loads the scripts
	old := r.stale(t, r.opens)
	called, wrote := false, error(nil)
	writes := func() {
		time.Sleep(20 * time.Millisecond) // Redis executes the first command
		called, wrote = true, r.store.Save(old, "q", "late")
	}
	between.Store(&writes)
	must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
		loaded, err := r.memory.Load(ctx, "")
		if !called || wrote == nil && !slices.Contains(loaded, "late") {
			t.Errorf("called: %t; the older holder's write was accepted, and %q loaded", called, loaded)
		}
		return err
	}))
}
