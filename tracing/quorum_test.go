package tracing_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// nodes is a backend that shows the answers of two nodes, and those of a third node in late.
type nodes struct {
	driver.Driver
	late []func()
	asks int // calls that want to see answers
}

func (n *nodes) answer(ctx context.Context) {
	answered := driver.NodeAnswers(ctx)
	if answered == nil {
		return
	}
	n.asks++
	a := driver.NodeAnswer{Nodes: 3, Quorum: 2}
	a.Node, a.Answer, a.Took = "a:6379", "granted", 1500*time.Microsecond
	answered(a)
	a.Node, a.Answer, a.Took = "b:6379", "no right to lock:"+session, time.Second
	answered(a)
	n.late = append(n.late, func() { answered(a) })
}

func (n *nodes) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	n.answer(ctx)
	return n.Driver.Acquire(ctx, req)
}

func (n *nodes) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	n.answer(ctx)
	return n.Driver.Extend(ctx, reqs)
}

func (n *nodes) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	n.answer(ctx)
	return n.Driver.Release(ctx, req)
}

// onQuorum acquires, extends and releases a lock on nodes.
func onQuorum(t *testing.T, sampler sdktrace.Sampler) (*nodes, *setup) {
	t.Helper()
	n := &nodes{Driver: memlock.NewDriver()}
	s := setupOn(t, n, sampler, &distlock.Options{})
	lease, err := s.locker.Acquire(t.Context(), session)
	must(t, err)
	must(t, lease.Extend(t.Context(), time.Minute))
	must(t, lease.Release(t.Context()))
	return n, s
}

// A span shows each node's answer before its end, without the key.
func TestQuorum_spansShowTheNodes(t *testing.T) {
	n, s := onQuorum(t, sdktrace.AlwaysSample())
	for _, late := range n.late {
		late()
	}
	for _, name := range []string{"distlock.acquire", "distlock.extend", "distlock.release"} {
		span := s.span(t, name)
		attrs := attributes(span)
		if attrs["distlock.nodes"].AsInt64() != 3 || attrs["distlock.quorum"].AsInt64() != 2 {
			t.Errorf("%s has %v", name, span.Attributes)
		}
		var events []string
		for _, e := range span.Events {
			text := e.Name
			for _, a := range e.Attributes {
				text += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
			}
			events = append(events, text)
		}
		if len(events) != 2 ||
			events[0] != "distlock.node distlock.node=a:6379 distlock.node.answer=granted distlock.node.took_ms=1.5" ||
			!strings.Contains(events[1], "b:6379 distlock.node.answer=no right to lock:") ||
			slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, session) }) {
			t.Errorf("%s has the events %q", name, events)
		}
	}
}

// A span that nothing records costs the backend nothing.
func TestQuorum_unsampled_nodesAreNotAsked(t *testing.T) {
	if n, _ := onQuorum(t, sdktrace.NeverSample()); n.asks != 0 {
		t.Errorf("%d calls were to show answers of nodes", n.asks)
	}
}
