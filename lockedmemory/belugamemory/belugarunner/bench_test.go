package belugarunner_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// BenchmarkRun makes a run with each service in turn, in a session each, with texts of 400 bytes. It reports medians
// in microseconds: of the first and the last 100 runs, and of the way of an event from the agent to the reader.
func BenchmarkRun(b *testing.B) {
	text, sent := strings.Repeat("text ", 80), time.Time{}
	a := emits{send: func(_ context.Context, _ string, yield func(agent.Event, error) bool) {
		sent = time.Now()
		yield(says(text), nil)
	}}
	beluga := runtime.NewInMemorySessionService()
	session, err := beluga.Create(b.Context(), "agent")
	must(b, err)
	inMemory := runtime.NewRunner(a, runtime.WithSessionService(beluga))
	defer func() { must(b, inMemory.Shutdown(context.Background())) }()
	took := map[string][]time.Duration{}
	runs := map[string]func(context.Context, string, schema.Message) iter.Seq2[agent.Event, error]{
		"memory":   inMemory.Run,
		"redis":    newRunner(b, a, migrated.EmptyRedis(b), *belugarunner.WithStream()).Run,
		"postgres": newRunner(b, a, migrated.Database(b, servers.SharedPostgres(b)).URL(), *belugarunner.WithStream()).Run,
	}
	for b.Loop() {
		for name, run := range runs {
			began, seen := time.Now(), time.Duration(0)
			for _, err := range run(b.Context(), session.ID, schema.NewHumanMessage(text)) {
				if must(b, err); seen == 0 {
					seen = time.Since(sent)
				}
			}
			took[name] = append(took[name], time.Since(began))
			took[name+"-event"] = append(took[name+"-event"], seen)
		}
	}
	for name, all := range took {
		n := min(100, len(all))
		for end, some := range map[string][]time.Duration{"-first": all[:n], "-last": all[len(all)-n:]} {
			b.ReportMetric(float64(slices.Sorted(slices.Values(some))[n/2].Microseconds()), name+end+"-µs")
		}
	}
}
