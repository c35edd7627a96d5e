package docs

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/tracing"
)

// The spans of a turn, and the attributes of all spans, are those that the page shows.
func TestSpans_asOnThePage(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	observer, err := tracing.New(tracing.WithTracerProvider(provider))
	if err != nil {
		t.Fatal(err)
	}
	locker := inProcess(t, &distlock.Options{Observer: observer})
	memory, err := lockedmemory.New(quick{}, locker, lockedmemory.FixedKey("session"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := memory.Turn(t.Context(), func(ctx context.Context) error { return memory.Save(ctx, "question", "answer") }); err != nil {
		t.Fatal(err)
	}
	turn := exporter.GetSpans()
	want := Spans.Blocks(t, "spans")[0]
	if got := tree(turn); got != want {
		t.Errorf("a turn has the spans\n%sthe page shows\n%s", got, want)
	}

	lease := acquire(t, locker)
	if _, err := locker.TryAcquire(t.Context(), "session"); err == nil {
		t.Fatal("two leases")
	}
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	runOnNodes(t, observer)
	got, links := map[string]bool{}, 0
	for _, span := range exporter.GetSpans() {
		links += len(span.Links)
		for _, attribute := range span.Attributes {
			got[string(attribute.Key)] = true
		}
	}
	documented := map[string]bool{}
	for _, row := range Spans.Table(t) {
		documented[row[0]] = true
	}
	if !maps.Equal(got, documented) {
		t.Errorf("spans have the attributes %q, the table %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(documented)))
	}
	if links != 1 {
		t.Errorf("%d links, want that of the acquire that found the lock busy", links)
	}
}

// runOnNodes acquires a lock whose nodes show their answers.
func runOnNodes(t *testing.T, observer distlock.Observer) {
	t.Helper()
	locker, err := distlock.New(onNodes{memlock.NewDriver()}, &distlock.Options{Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(t.Context())
	acquire(t, locker)
}

type onNodes struct{ driver.Driver }

func (n onNodes) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	driver.NodeAnswers(ctx)(driver.NodeAnswer{Node: "host:6379", Answer: "granted", Nodes: 3, Quorum: 2})
	return n.Driver.Acquire(ctx, req)
}

// tree shows spans as an outline, in the order in which they began.
func tree(spans tracetest.SpanStubs) string {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var outline strings.Builder
	var below func(parent tracetest.SpanStub, indent string)
	below = func(parent tracetest.SpanStub, indent string) {
		for _, span := range spans {
			if span.Parent.SpanID() == parent.SpanContext.SpanID() {
				outline.WriteString(indent + span.Name + "\n")
				below(span, indent+"  ")
			}
		}
	}
	below(tracetest.SpanStub{}, "")
	return outline.String()
}

// quick is a memory that does nothing.
type quick struct{ stuck }

func (quick) Save(context.Context, string, string) error { return nil }
