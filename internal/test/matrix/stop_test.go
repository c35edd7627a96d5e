package matrix

import (
	"context"
	"flag"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/child"
)

var holders = flag.Int("holders", 100, "`number` of turns that tests stop")

var interruptible = ofLock(func(o *distlock.Options) { o.Interruptible = true })

// serveAnswers answers the same message in sessions. It sends the time at which the context of each function
// has ended. Then the function writes past all checks, and returns an answer.
func serveAnswers(_ context.Context, parent *child.Line, o stopOrder) error {
	c, err := o.Service.open()
	if err != nil {
		return err
	}
	l, err := newLocker(c, withTTL(o.TTL), interruptible)
	if err != nil {
		return err
	}
	in := instance{client: c, beside: l}
	ended, began := make(chan int64), make(chan struct{})
	for _, key := range o.Keys {
		go func() {
			s := in.session(key, false)
			_, _ = s.Answer(context.Background(), "m", "question", func(ctx context.Context) ([]string, error) {
				began <- struct{}{}
				<-ctx.Done()
				at := time.Now().UnixNano()
				_ = s.Append(ctx, "late")
				_ = s.store.Append(context.WithoutCancel(ctx), "past all checks")
				ended <- at
				return []string{"answer"}, nil
			})
		}()
		<-began
	}
	for err = parent.Send("began"); err == nil; err = parent.Send(<-ended) {
	}
	return err
}

type stopOrder struct {
	Service target
	Keys    []string
	TTL     time.Duration
}

// answering starts processes that answer the message in so many sessions each.
func answering(t *testing.T, s *service, name string, processes, each int) (all []*peer, keys []string) {
	for p := range processes {
		o := stopOrder{Service: s.target(), TTL: time.Minute}
		for n := range each {
			o.Keys = append(o.Keys, name+strconv.Itoa(p*each+n))
		}
		all, keys = append(all, startChild(t, "answers", o)), append(keys, o.Keys...)
	}
	for _, c := range all {
		c.must(c.Receive(new(string)))
	}
	return all, keys
}

func quantiles(all []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(all)
	return all[len(all)/2], all[(len(all)*99-1)/100]
}

// measureStop stops the message of a session, and returns when the call began and how long it took.
func measureStop(t *testing.T, in *instance, key string) (began time.Time, took time.Duration) {
	s := in.session(key, false)
	if _, known, err := s.Answered(t.Context(), "m"); known || err != nil { // a service has its connections
		t.Errorf("Answered of %s: %t, %v", key, known, err)
	}
	began = time.Now()
	if stored, err := s.Stop(t.Context(), "m", 0); stored || err != nil {
		t.Errorf("Stop of %s: %t, %v", key, stored, err)
	}
	return began, time.Since(began)
}

// A context in another process ends a few round trips after the Stop. The figures are for people: the bar is
// wide, as the machine may be busy.
func TestStop_L_remoteContextEnds_measured(t *testing.T) {
	s := startService(t, "node")
	in := &instance{client: s.client(t)}
	in.beside = locker(t, in.client, interruptible)
	all, keys := answering(t, s, "remote-", 1, *holders)
	var ends, calls, pings []time.Duration
	for _, key := range keys {
		start := time.Now()
		if err := in.client.redis.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		pings = append(pings, time.Since(start))
		began, took := measureStop(t, in, key)
		var at int64
		all[0].must(all[0].Receive(&at))
		ends, calls = append(ends, time.Duration(at-began.UnixNano())), append(calls, took)
	}
	end50, end99 := quantiles(ends)
	call50, call99 := quantiles(calls)
	ping50, ping99 := quantiles(pings)
	t.Logf("p50, p99: Stop to the end of the context %s, %s (%.1f × the p99 of PING); Stop %s, %s; PING %s, %s",
		end50, end99, float64(end99)/float64(ping99), call50, call99, ping50, ping99)
	if end50 > 5*ping99+50*time.Millisecond {
		t.Error("the contexts end late")
	}
}

// Stop does not wait for holders that are paused. When they go on, they store nothing.
func TestStop_L_pausedHolders_measured(t *testing.T) {
	s := startService(t, "node")
	in := &instance{client: s.client(t)}
	in.beside = locker(t, in.client, interruptible)
	all, keys := answering(t, s, "paused-", 4, *holders/4)
	for _, c := range all {
		c.must(c.Pause())
	}
	var calls []time.Duration
	for _, key := range keys {
		_, took := measureStop(t, in, key)
		calls = append(calls, took)
	}
	for _, c := range all {
		c.must(c.Continue())
		for range *holders / 4 {
			c.must(c.Receive(new(int64)))
		}
	}
	p50, p99 := quantiles(calls)
	t.Logf("Stop of %d paused holders: p50 %s, p99 %s", len(calls), p50, p99)
	if p99 > time.Second { // 100 ms on a machine that does nothing else
		t.Error("Stop waits for paused holders")
	}
	var reads sync.WaitGroup
	defer reads.Wait()
	for _, key := range keys {
		reads.Go(func() {
			if exchanges, err := in.session(key, false).Last(t.Context(), 10); len(exchanges) > 0 || err != nil {
				t.Errorf("%s keeps %v after its Stop: %v", key, exchanges, err)
			}
		})
	}
}
