package collectortest

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/incidents"
)

// answers are the tests of the answers, by question.
var answers = map[string]func(*question){
	"Why did this turn wait?":                              (*question).why,
	"On which turn and instance did it wait?":              (*question).onWhom,
	"Since when does that holder have the lock?":           (*question).sinceWhen,
	"Is a holder stuck?":                                   (*question).stuck,
	"Which turn lost its lease?":                           (*question).lost,
	"Are renewals failing?":                                (*question).renewals,
	"Were messages refused as stale?":                      (*question).stale,
	"Does the queue grow?":                                 (*question).queue,
	"Did the lock or the lock service cause this failure?": (*question).cause,
	"Does it get worse?":                                   (*question).worse,
}

// one returns the only span with the properties.
func (q *question) one(what string, properties ...func(span) bool) span {
	q.Helper()
	found := q.spans(properties...)
	if len(found) != 1 {
		q.Fatalf("%d spans are %s, want 1", len(found), what)
	}
	return found[0]
}

// acquire returns the acquire of a trace.
func (q *question) acquire(trace [16]byte) span {
	q.Helper()
	return q.one("the acquire of the trace", inTrace(trace), named(q.name("distlock.acquire")))
}

// ended returns how many operations of an instance have ended so; those of distlock.extend are renewals.
func (q *question) ended(instance, operation string, outcome distlock.Outcome) (all int) {
	for e, n := range q.Operations {
		if e.Instance == instance && e.Name == operation && e.Outcome == outcome && e.Scheduled == (operation == distlock.OpExtend) {
			all += n
		}
	}
	return all
}

func (q *question) hasError(e ptrace.SpanEvent) bool {
	return text(e.Attributes(), q.name("exception.message")) != ""
}

func (q *question) why() {
	turn := q.name("lockedmemory.turn")
	for _, w := range q.Waits {
		for _, s := range []span{q.acquire(w.Trace), q.one("the turn", inTrace(w.Trace), named(turn))} {
			took := s.ms(q.name("distlock.wait_ms"))
			if took < w.AtLeast || w.AtMost < took {
				q.Errorf("%s waited for %s, want %s to %s", s.Name(), took, w.AtLeast, w.AtMost)
			}
		}
		if got := q.acquire(w.Trace).text(q.name("distlock.outcome")); got != string(w.Outcome) {
			q.Errorf("the wait of %s ended as %q, want %q", w.Key, got, w.Outcome)
		}
	}
}

func (q *question) onWhom() {
	for _, w := range q.Waits {
		links := q.acquire(w.Trace).Links()
		if links.Len() != 1 || [16]byte(links.At(0).TraceID()) != w.Holder.Trace {
			q.Errorf("the wait of %s has %d links, want one to %s", w.Key, links.Len(), w.Holder.Trace)
			continue
		}
		holder := q.acquire(links.At(0).TraceID())
		if got := text(holder.instance, q.name("service.instance.id")); got != w.Holder.Instance {
			q.Errorf("the holder of %s is %q, want %q", w.Key, got, w.Holder.Instance)
		}
	}
}

func (q *question) sinceWhen() {
	for _, w := range q.Waits {
		grant := q.acquire(w.Holder.Trace)
		asked, granted := grant.StartTimestamp().AsTime(), grant.EndTimestamp().AsTime()
		if granted.Before(asked) || w.Holder.Since.Before(granted) || w.Holder.Since.Sub(asked) > time.Minute {
			q.Errorf("the holder of %s was granted the lock at %s, want just before %s", w.Key, granted, w.Holder.Since)
		}
	}
}

func (q *question) stuck() {
	var free, held []span
	for _, w := range q.Waits {
		released := q.spans(inTrace(w.Holder.Trace), named(q.name("distlock.release")))
		if w.Holder.Trace == q.Stuck.Trace {
			held = append(held, released...)
		} else {
			free = append(free, released...)
		}
	}
	if len(held) != 0 || len(free) == 0 {
		q.Errorf("%d releases of the stuck holder, %d of another", len(held), len(free))
	}
	renewed := q.spans(inTrace(q.Stuck.Trace), named(q.name("distlock.extend")), func(s span) bool {
		scheduled, _ := s.Attributes().Get(q.name("distlock.scheduled"))
		return scheduled.Bool() && s.text("distlock.outcome") == string(distlock.OutcomeDone)
	})
	if len(renewed) < 2 {
		q.Errorf("%d renewals of the stuck holder", len(renewed))
	}
	if got := q.sum(q.Stuck.Instance, q.name("distlock.held"), ""); got != 1 {
		q.Errorf("%s holds %d leases, want the stuck one", q.Stuck.Instance, got)
	}
}

func (q *question) lost() {
	lines, trace, key := q.lines(incidents.LineLost), q.name("trace_id"), q.name("lock_key")
	turn := q.one("the turn", named(q.name("lockedmemory.turn")), about(incidents.Lost))
	if len(lines) != 1 || lines[0][trace] != turn.TraceID().String() || lines[0][key] != turn.text(key) {
		q.Errorf("the log has %v, want one line about %s in the trace %s", lines, turn.text(key), turn.TraceID())
	}
	events := 0
	for _, s := range q.spans(inTrace(turn.TraceID())) {
		events += s.events(func(e ptrace.SpanEvent) bool { return e.Name() == q.name("distlock.lost") })
	}
	if got := q.sum(incidents.Unlucky, "distlock.lost", ""); events != 1 || got != 1 {
		q.Errorf("%d events, the metric is %d, want 1 lost lease", events, got)
	}
}

func (q *question) renewals() {
	want := q.ended(incidents.Unlucky, distlock.OpExtend, distlock.OutcomeUnavailable)
	if got := q.sum(incidents.Unlucky, q.name("distlock.renew.failures"), distlock.OutcomeUnavailable); got != want {
		q.Errorf("%d failed renewals, want %d", got, want)
	}
	for _, healthy := range []string{incidents.Waiting, incidents.Paused} {
		if got := q.sum(healthy, "distlock.renew.failures", distlock.OutcomeUnavailable); got != 0 {
			q.Errorf("%d failed renewals of %s", got, healthy)
		}
	}
	failed := q.spans(named(q.name("distlock.extend")), about(incidents.Outage),
		func(s span) bool { return s.Events().Len() == 1 && s.events(q.hasError) == 1 })
	if len(failed) < 3 {
		q.Errorf("%d failed renewals of the turn say why", len(failed))
	}
	if lines := q.lines(incidents.LineOutage); len(lines) == 0 || lines[0][q.name("error")] == "" {
		q.Errorf("the log has %v", lines)
	}
}

func (q *question) stale() {
	if got := q.sum(incidents.Paused, q.name("sessionstore.stale_writes"), ""); got != q.StaleWrites || got == 0 {
		q.Errorf("%d stale writes, want %d", got, q.StaleWrites)
	}
	save := q.one("the refused write", named(q.name("lockedmemory.save")), about(incidents.Stale),
		func(s span) bool { return s.text(q.name("distlock.outcome")) == string(distlock.OutcomeStale) })
	if got := text(save.instance, "service.instance.id"); got != incidents.Paused {
		q.Errorf("the refused write is that of %s", got)
	}
}

func (q *question) queue() {
	if got := q.sum(incidents.Waiting, q.name("distlock.waiters"), ""); got != q.Queue {
		q.Errorf("%d waiters, want %d", got, q.Queue)
	}
}

func (q *question) cause() {
	for outcome, want := range map[distlock.Outcome]int{distlock.OutcomeBusy: 0, distlock.OutcomeTimeout: 0,
		distlock.OutcomeUnavailable: 1, distlock.OutcomeRefused: 1} {
		for _, s := range q.spans(named(q.name("distlock.acquire")), func(s span) bool {
			return s.text(q.name("distlock.outcome")) == string(outcome)
		}) {
			if got := s.events(q.hasError); got != want {
				q.Errorf("%d errors of an acquire that ended as %s, want %d", got, outcome, want)
			}
		}
		for _, instance := range incidents.Instances {
			ended := q.ended(instance, distlock.OpAcquire, outcome)
			if got := q.sum(instance, q.name("distlock.acquire.duration"), outcome); got != ended {
				q.Errorf("%d calls of %s ended as %s, want %d", got, instance, outcome, ended)
			}
		}
	}
}

// worse looks for the long waits of the scene in the histogram, and for a trace that shows one.
func (q *question) worse() {
	var hold time.Duration
	for _, w := range q.Waits {
		hold = max(hold, w.AtLeast)
	}
	metric, long, shown := q.name("distlock.acquire.duration"), uint64(0), 0
	for _, p := range q.points(incidents.Waiting, metric) {
		long += above(p.histogram, time.Second.Seconds())
		for _, e := range p.exemplars.All() {
			if e.DoubleValue() < hold.Seconds() {
				continue
			}
			shown++
			wait := q.acquire(e.TraceID()).ms("distlock.wait_ms").Seconds()
			if difference := wait - e.DoubleValue(); max(difference, -difference) > 0.001 {
				q.Errorf("an exemplar of %f s leads to a wait of %f s", e.DoubleValue(), wait)
			}
		}
	}
	if long < 5 || shown == 0 {
		q.Errorf("%d waits of a second and more, %d exemplars of %s and more", long, shown, hold)
	}
}

// above counts the measurements above a bound of the buckets.
func above(p pmetric.HistogramDataPoint, bound float64) (n uint64) {
	bounds, counts := p.ExplicitBounds().AsRaw(), p.BucketCounts().AsRaw()
	for _, count := range counts[slices.Index(bounds, bound)+1:] {
		n += count
	}
	return n
}
