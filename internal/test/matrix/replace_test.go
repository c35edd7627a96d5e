package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// editOrder has a child replace a part of each session. In session n, the child stops when it has sent n
// requests of the Replace.
type editOrder struct {
	Keys    []string
	TTL     time.Duration
	Service target
}

// editReport is the state of one session: the child has stopped, or its Replace has returned.
type editReport struct {
	Key      string
	Returned bool
	Error    string
}

// serveEdits reports on each session, and then waits for its end.
func serveEdits(ctx context.Context, parent *child.Line, o editOrder) error {
	reports := make(chan editReport, 2*len(o.Keys))
	for n, key := range o.Keys {
		stage := []byte(stageKey(key))
		if o.Service.Postgres != "" {
			stage = []byte("replace_v1(") // a Replace is one request
		}
		about := stopping{stage: stage, after: int64(n), sent: new(atomic.Int64),
			stops: sync.OnceFunc(func() { reports <- editReport{Key: key} })}
		var clients [2]client
		for i := range clients {
			var err error
			if clients[i], err = o.Service.open(dialedBy(about.dial)); err != nil {
				return err
			}
		}
		lockClient := clients[n%2] // that of the store, or another one
		locker, err := newLocker(lockClient, distlock.Options{TTL: o.TTL, Holder: "child"})
		if err != nil {
			return err
		}
		s := (&instance{client: clients[0], beside: locker}).session(key, false)
		go func() {
			err := s.Turn(ctx, func(ctx context.Context) error { return s.edit(ctx) })
			reports <- editReport{Key: key, Returned: true, Error: fmt.Sprint(err)}
		}()
	}
	for range o.Keys {
		if err := parent.Send(<-reports); err != nil {
			return err
		}
	}
	return parent.Receive(new(string))
}

// stopping makes connections that stop the process, as far as it works on one session, when it has sent
// some requests of a staging.
type stopping struct {
	stage []byte
	after int64
	sent  *atomic.Int64
	stops func()
}

func (s stopping) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return stoppingConn{c, s}, err
}

type stoppingConn struct {
	net.Conn
	stopping
}

func (c stoppingConn) Write(p []byte) (n int, err error) {
	if !bytes.Contains(p, c.stage) {
		return c.Conn.Write(p)
	}
	sent := c.sent.Add(1)
	if sent <= c.after {
		n, err = c.Conn.Write(p)
	}
	if sent >= c.after {
		c.stops()
		select {}
	}
	return n, err
}

func stageKey(key string) string { return "session:{" + key + "}:stage" }

// The history before and after edit: exchanges 60 to 79 of 100 are replaced by 60 others.
const (
	editedFrom, editedTo, editedOf, editedBy = 60, 79, 100, 60
)

// edit replaces the range, in a turn.
func (s *session) edit(ctx context.Context) error {
	var all []lockedmemory.Exchange[string]
	for e, err := range s.store.Forward(ctx, lockedmemory.Place{}) {
		if err != nil {
			return err
		}
		all = append(all, e)
	}
	with := make([]lockedmemory.Exchange[string], editedBy)
	for n := range with {
		text := fmt.Sprint("new-", n)
		with[n].Messages = []string{text, reply(text)}
	}
	return s.store.Replace(ctx, all[editedFrom].Place, all[editedTo].Place, with...)
}

// histories returns the two histories, each as one text.
func histories() (before, after string) {
	texts := func(prefix string, from, to int) (all []string) {
		for n := from; n < to; n++ {
			all = append(all, fmt.Sprint(prefix, n), reply(fmt.Sprint(prefix, n)))
		}
		return all
	}
	old := func(from, to int) []string { return texts("old-", from, to) }
	return strings.Join(old(0, editedOf), " "),
		strings.Join(slices.Concat(old(0, editedFrom), texts("new-", 0, editedBy), old(editedTo+1, editedOf)), " ")
}

// pages reads the session in one of three ways, as one text.
func (s *session) pages(ctx context.Context, way int) (string, error) {
	var all []string
	var err error
	switch way % 3 {
	case 0:
		all, err = s.Load(ctx, "")
	case 1:
		for e, failed := range s.store.Forward(ctx, lockedmemory.Place{}) {
			all, err = append(all, e.Messages...), failed
		}
	default:
		for e, failed := range s.store.Backward(ctx, lockedmemory.Place{}) {
			slices.Reverse(e.Messages)
			all, err = append(all, e.Messages...), failed
		}
		slices.Reverse(all)
	}
	return strings.Join(all, " "), err
}

// A process is killed at each step of a Replace while others read page by page. They see the history before
// the Replace or after it. The staging of the dead process expires within a minute. The next holder can
// replace the same range at once.
func replaceKilled(t *testing.T, s *service) {
	const ttl, steps = time.Second, 12
	before, after := histories()
	in := s.instance(t, distlock.Options{TTL: time.Minute})
	o := editOrder{TTL: ttl, Service: s.target()}
	sessions := make(map[string]*session)
	var all sync.WaitGroup
	for n := range steps {
		key := fmt.Sprint("replaceKilled-", n)
		x := in.session(key, n%2 == 1)
		o.Keys, sessions[key] = append(o.Keys, key), x
		all.Go(func() {
			turn := x.begin(t)
			for n := range editedOf {
				if err := x.save(turn.ctx, fmt.Sprint("old-", n)); err != nil {
					t.Errorf("Save: %v", err)
				}
			}
			turn.mustEnd(t)
		})
	}
	all.Wait()
	over := make(chan struct{})
	var readers sync.WaitGroup
	stop := sync.OnceFunc(func() {
		close(over)
		readers.Wait()
	})
	defer stop()
	var seenBefore, seenAfter atomic.Int64
	for _, x := range sessions {
		readers.Go(func() {
			for way := 0; ; way++ {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
				}
				switch got, err := x.pages(t.Context(), way); {
				case errors.Is(err, sessionstore.ErrChanged):
				case err != nil:
					t.Errorf("%s: reading in way %d: %v", x.key, way%3, err)
					return
				case got == before:
					seenBefore.Add(1)
				case got == after:
					seenAfter.Add(1)
				default:
					t.Errorf("%s: way %d shows neither the history before nor the one after: %s", x.key, way%3, got)
					return
				}
			}
		})
	}
	child := startChild(t, "edits", o)
	returned := 0
	for range o.Keys {
		var r editReport
		child.must(child.Receive(&r))
		if r.Returned {
			returned++
			if r.Error != fmt.Sprint(nil) {
				t.Errorf("%s: the child's Replace: %s", r.Key, r.Error)
			}
		}
	}
	child.Kill()
	<-child.Done()
	staged := 0
	for key, x := range sessions {
		if s.isStaged(t, key) {
			staged++
		}
		all.Go(func() {
			next := x.begin(t)
			got, err := x.pages(next.ctx, 0)
			if err != nil || got != before && got != after {
				t.Errorf("%s: after the child's death: %v, %s", key, err, got)
			}
			if got == before {
				if err := x.edit(next.ctx); err != nil {
					t.Errorf("%s: the next holder: %v", key, err)
				}
			}
			next.mustEnd(t)
			if got, err := x.pages(t.Context(), 1); err != nil || got != after {
				t.Errorf("%s: in the end: %v, %s", key, err, got)
			}
			if s.isStaged(t, key) {
				t.Errorf("%s: something is staged in the end", key)
			}
		})
	}
	all.Wait()
	stop()
	t.Logf("%d of %d calls returned, %d left a staging; read before: %d, after: %d", returned, steps, staged, seenBefore.Load(), seenAfter.Load())
	if returned == 0 || staged < 3 && s.postgres == nil || seenBefore.Load() == 0 || seenAfter.Load() == 0 {
		t.Error("this tests nothing")
	}
}

// isStaged reports whether a part of a Replace is staged, for at most a minute. PostgreSQL stages
// nothing.
func (s *service) isStaged(t *testing.T, key string) bool {
	t.Helper()
	if s.postgres != nil {
		return false
	}
	life, err := strconv.Atoi(mustDo(t, s.master(key), "PTTL", stageKey(key)))
	if err != nil || life == -1 || life > 60_000 {
		t.Errorf("%s: the staging lives for %d ms, %v; want at most a minute", key, life, err)
	}
	return life > 0
}
