// Package incidents plays a scene on a real Redis. It makes each span, metric and log line happen
// that the library reports: a turn that waits for seconds, a queue, handoffs, a lost lease, a stale
// write, failed renewals, a stuck holder. The Report has the facts, with which a test compares the
// received telemetry. The scene waits for states, not for times.
package incidents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/belugalock/belugalock/distlock"
)

// Telemetry is what one instance reports to.
type Telemetry struct {
	Observer distlock.Observer
	Logger   *slog.Logger // nil: none
	Tracer   trace.Tracer // makes a span "message" around each message that waits or is waited for
}

// Instances are the names of the instances. Each has a Locker, a client and a store of its own. The
// name is the Holder of its locks.
var Instances = []string{Steady, Waiting, Unlucky, Paused}

const (
	Steady  = "agent-steady"  // holds the locks that others wait for
	Waiting = "agent-waiting" // waits
	Unlucky = "agent-unlucky" // loses its network, and once its lease
	Paused  = "agent-paused"  // writes after another instance has the lock
)

// The sessions of the scene, by their incident.
const (
	Slow        = "slow-turn"        // a turn holds it for the time given to Play; five others queue
	Stuck       = "stuck-turn"       // one turn holds it until Close; waiters time out, leave or still wait
	Lost        = "lost-lease"       // the lock expires under a turn
	Outage      = "failed-renewals"  // renewals fail and recover during a turn
	Unavailable = "unavailable"      // an acquire without the lock service
	Kept        = "failed-release"   // a release without the lock service
	Unheard     = "unknown-outcome"  // a Save whose answer is lost
	Polled      = "no-notifications" // a waiter that the lock service cannot notify
	Panics      = "hook-that-panics" // an operation whose Observer panics
	Stale       = "stale-write"      // a paused turn writes after another instance
	Conflict    = "turn-id-conflict" // one turn ID for two messages
	Refused     = "refused"          // the name of the lock holds data of another program
	Failed      = "failed-turn"      // the function of the turn fails
	Calls       = "every-call"       // each call of a memory and a lease, once
)

// Report has the facts of a scene.
type Report struct {
	Waits       []Wait        // each has a known holder
	Stuck       Holder        // of [Stuck]
	Queue       int           // calls of Acquire that wait for Stuck until Close
	Operations  map[Event]int // that have ended; losses and scheduled renewals are among them
	StaleWrites int           // writes that the store refused
}

// Holder is a turn that holds a lock.
type Holder struct {
	Key, Instance string
	Trace         trace.TraceID
	Since         time.Time // just after the grant
}

// Wait is one call that waited for a known holder.
type Wait struct {
	Key, Instance string
	Trace         trace.TraceID
	Holder        Holder
	Outcome       distlock.Outcome
	AtLeast       time.Duration // the bounds of its wait
	AtMost        time.Duration
}

// Event names operations that an Observer has seen.
type Event struct {
	Instance, Name, Key string
	Outcome             distlock.Outcome
	Scheduled           bool
}

// Scene is a scene after its incidents. Its stuck holder still holds its lock, and renews it.
type Scene struct {
	Report
	*stage
}

// stage is what a scene needs while it runs.
type stage struct {
	tb        testing.TB
	admin     *redis.Client
	namespace string
	hold      time.Duration
	telemetry func(instance string) Telemetry
	instances map[string]*instance
	watch     *watch

	mu     sync.Mutex
	report Report

	leave   context.CancelFunc // ends the calls that wait for the stuck holder
	recover func()             // lets the stuck holder return
	last    sync.WaitGroup     // the stuck holder and the calls that wait for it
}

// Play plays the scene on the Redis at addr, one at a time: all scenes have one namespace. The slow
// turn holds its session for the time hold once its waiters queue. Play fails if an incident did
// not happen; then nothing is left to close.
func Play(tb testing.TB, addr string, hold time.Duration, telemetry func(instance string) Telemetry) (*Scene, error) {
	ctx := tb.Context()
	s := &stage{
		tb:        tb,
		admin:     redis.NewClient(&redis.Options{Addr: addr}),
		namespace: "incidents",
		hold:      hold,
		telemetry: telemetry,
		instances: make(map[string]*instance),
		watch:     newWatch(),
	}
	waiting, leave := context.WithCancel(ctx)
	end := make(chan struct{})
	s.leave, s.recover = leave, sync.OnceFunc(func() { close(end) })
	err := s.play(ctx, addr, waiting, end)
	if err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	s.report.Operations = s.watch.ended()
	return &Scene{Report: s.report, stage: s}, nil
}

func (s *stage) play(ctx context.Context, addr string, waiting context.Context, end <-chan struct{}) error {
	for _, name := range Instances {
		i, err := newInstance(s, addr, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.instances[name] = i
	}
	if err := s.stick(ctx, end); err != nil {
		return err
	}
	failures := make(chan error, 4)
	for _, incidents := range []func(context.Context) error{s.contention, s.impatience, s.faults, s.writes} {
		go func() { failures <- incidents(ctx) }()
	}
	var err error
	for range cap(failures) {
		err = errors.Join(err, <-failures)
	}
	if err != nil {
		return err
	}
	return s.queueUp(ctx, waiting)
}

// Close lets the stuck holder go, ends the calls that wait for it, closes the Lockers, and removes all
// that the scene has stored.
func (s *stage) Close(ctx context.Context) error {
	s.leave()
	s.recover()
	s.last.Wait()
	var err error
	for i := range maps.Values(s.instances) {
		err = errors.Join(err, i.locker.Close(ctx), i.client.Close())
	}
	for pages := s.admin.Scan(ctx, 0, s.namespace+"*", 1000).Iterator(); pages.Next(ctx); {
		err = errors.Join(err, s.admin.Unlink(ctx, pages.Val()).Err())
	}
	return errors.Join(err, s.admin.Close())
}

// waited adds a wait to the report.
func (s *stage) waited(w Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Waits = append(s.report.Waits, w)
}

// expire ends the lock on key at the service.
func (s *stage) expire(ctx context.Context, key string) error {
	// The record of a lock outlives the lock by a day, see distlock/redislock.
	ok, err := s.admin.PExpire(ctx, s.lockName(key), 24*time.Hour).Result()
	if err == nil && !ok {
		err = errors.New("it has no record")
	}
	return wrong("expire the lock "+key, err)
}

// lockName is the name of a lock in Redis.
func (s *stage) lockName(key string) string { return s.namespace + ":{" + key + "}:lock" }

// wrong says what went wrong; nil: nothing.
func wrong(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("incidents: %s: %w", what, err)
}

// want returns nil if err matches the expected error.
func want(what string, err, sentinel error) error {
	if errors.Is(err, sentinel) {
		return nil
	}
	return fmt.Errorf("incidents: %s: %v, want %v", what, err, sentinel)
}
