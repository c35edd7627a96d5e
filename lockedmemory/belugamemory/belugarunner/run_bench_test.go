package belugarunner_test

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// BenchmarkRun compares a run of a Runner on a Redis with a run on Beluga's service in memory: round
// trips, processor time of this process, and time. The agent answers at once. The figures are the
// medians of rounds that alternate with rounds of four bare commands, which show the machine's speed.
func BenchmarkRun(b *testing.B) {
	b.Run("1 to 10 turns", func(b *testing.B) { compareRuns(b, 40, 0) })
	b.Run("101 to 110 turns", func(b *testing.B) { compareRuns(b, 4, 100) })
}

// compareRuns measures 10 runs of each session, which has some turns before.
func compareRuns(b *testing.B, sessions, before int) {
	const rounds, turns = 15, 10
	server := servers.StartRedis(b)
	ours, inMemory, bare := runOnRedis(b, server.URL()), runInMemory(), runCommands(b, server.URL())
	ids := 0
	measure := func(by way) (c cost) {
		chosen := make([]string, sessions)
		answer := func() {
			for _, id := range chosen {
				for _, err := range by.run(b.Context(), id, schema.NewHumanMessage("hello")) {
					must(b, err)
				}
			}
		}
		for i := range chosen {
			chosen[i] = by.create(b, "session "+strconv.Itoa(ids))
			ids++
		}
		for range before {
			answer()
		}
		begin := costs(b, server)
		for range turns {
			answer()
		}
		return costs(b, server).since(begin, float64(sessions*turns))
	}
	var all, base, commands, more []cost
	for b.Loop() {
		all, base, commands, more = nil, nil, nil, nil
		for range rounds {
			a, m := measure(ours), measure(inMemory)
			all, base, more = append(all, a), append(base, m), append(more, a.since(m, 1))
			commands = append(commands, measure(bare))
		}
	}
	b.ReportMetric(0, "ns/op")
	report := func(name string, of func(cost) float64) {
		inOrder := func(costs []cost) (values []float64) {
			for _, c := range costs {
				values = append(values, of(c))
			}
			slices.Sort(values)
			return values
		}
		more := inOrder(more)
		b.Logf("%s a run: %.2f, in memory %.2f, difference %.2f, between %.2f and %.2f; four PINGs: %.2f", name,
			inOrder(all)[rounds/2], inOrder(base)[rounds/2], more[rounds/2], more[0], more[rounds-1], inOrder(commands)[rounds/2])
		b.ReportMetric(more[rounds/2], name+"/run")
	}
	report("round-trips", func(c cost) float64 { return c.trips })
	report("cpu-µs", func(c cost) float64 { return c.cpu })
	report("µs", func(c cost) float64 { return c.time })
}

// way runs turns, and to make the session of an ID or another one.
type way struct {
	run    func(ctx context.Context, id string, input schema.Message) iter.Seq2[agent.Event, error]
	create func(b *testing.B, id string) string
}

func runInMemory() way {
	s := runtime.NewInMemorySessionService()
	r := runtime.NewRunner(answers(echo), runtime.WithSessionService(s))
	return way{r.Run, func(b *testing.B, _ string) string {
		session, err := s.Create(b.Context(), "agent")
		must(b, err)
		return session.ID
	}}
}

func runOnRedis(b *testing.B, url string) way {
	r, err := belugarunner.New(answers(echo), url, nil)
	must(b, err)
	b.Cleanup(func() { must(b, r.Shutdown(context.Background())) })
	return way{r.Run, func(b *testing.B, id string) string {
		_, err := r.Sessions().Create(core.WithSessionID(b.Context(), id), "agent")
		must(b, err)
		return id
	}}
}

// runCommands returns a run that only sends four commands.
func runCommands(b *testing.B, url string) way {
	client := must2(redislock.ParseURL(url))
	b.Cleanup(func() { _ = client.Close() })
	return way{func(ctx context.Context, _ string, _ schema.Message) iter.Seq2[agent.Event, error] {
		return func(func(agent.Event, error) bool) {
			for range 4 {
				must(b, client.Ping(ctx).Err())
			}
		}
	}, func(_ *testing.B, id string) string { return id }}
}

// cost is what runs have used, in microseconds.
type cost struct{ trips, cpu, time float64 }

var reads = regexp.MustCompile(`total_reads_processed:(\d+)`)

// costs returns all that was used until now.
func costs(b *testing.B, server *servers.Redis) cost {
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	return cost{float64(requests(b, server)), float64(cpu.Microseconds()), float64(time.Now().UnixMicro())}
}

// requests returns how many requests the server has read.
func requests(t testing.TB, server *servers.Redis) int {
	t.Helper()
	info, err := server.Do("INFO", "stats")
	must(t, err)
	return must2(strconv.Atoi(reads.FindStringSubmatch(info)[1]))
}

func (c cost) since(begin cost, runs float64) cost {
	return cost{(c.trips - begin.trips) / runs, (c.cpu - begin.cpu) / runs, (c.time - begin.time) / runs}
}
