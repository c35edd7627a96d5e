package campaign

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

type sample struct {
	at         time.Duration
	warmUp     bool
	operations int64
	values     [nSeries]float64
}

const (
	heap = iota
	goroutines
	files         // where the system tells
	lastingMemory // of Redis, less that of keys that expire within seconds
	lastingKeys
	redisClients
	nSeries
)

// watched says of each series what the verdict needs: a growth that is allowed even if it is more than
// share of the whole, what one planted leak adds, and the unit.
var watched = [nSeries]struct {
	name        string
	least, leak float64
	unit        string
	per         float64 // one of unit
	typical     float64 // value
}{
	// The buffers of four connections of go-redis: as many may have been killed just before a sample.
	heap: {"heap in use", 256 << 10, leakedBytes, "KiB", 1 << 10, 2800 << 10},
	// On a slow machine, the replacements of killed connections come late.
	goroutines: {"goroutines", 4, 1, "", 1, 66},
	files:      {"open files", 4, 1, "", 1, 45},
	// The tables of a thousand keys and of their expiries, which double at once, with the last
	// block of some sessions.
	lastingMemory: {"lasting memory of Redis", 64 << 10, leakedKeys * leakedValue, "KiB", 1 << 10, 2200 << 10},
	// There are one to three for each name.
	lastingKeys:  {"lasting keys in Redis", 10, leakedKeys, "", 1, 538},
	redisClients: {"connections to Redis", 4, 1, "", 1, 34},
}

// share is the part of a series that may always be added.
const share = 0.02

// passTime counts the keys that do not expire within ARGV[1] ms, and the bytes of those that do.
// Tombstones, which stay for 2 minutes, are made to expire within that time.
const passTime = `
local lasting, bytes = 0, 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if string.find(key, '}:tombstones', 1, true) and left > tonumber(ARGV[1]) then
    redis.call('PEXPIRE', key, ARGV[1])
    left = tonumber(ARGV[1])
  end
  if left >= 0 and left <= tonumber(ARGV[1]) then
    bytes = bytes + redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0)
  else
    lasting = lasting + 1
  end
end
return {lasting, bytes}`

// seconds is longer than anything stays that is for seconds, as a lease that takeFree has extended.
const seconds = 2 * soakTTL

// takeSample is to be called between operations.
func takeSample(server *servers.Redis, at time.Duration) (sample, error) {
	// The content of a sync.Pool stays over one collection.
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	s := sample{at: at}
	s.values[heap] = float64(memory.HeapAlloc)
	s.values[goroutines] = float64(runtime.NumGoroutine())
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.values[files] = float64(len(open) - 1) // without the directory itself
	}
	passing, err1 := server.Do("EVAL", passTime, "0", fmt.Sprint(seconds.Milliseconds()))
	clients, err2 := server.Do("CLIENT", "LIST")
	info, err3 := server.Do("INFO")
	var lasting, bytes float64
	_, err4 := fmt.Sscan(passing, &lasting, &bytes)
	// The buffers of the clients follow the last messages, and grow with the connections, which
	// have a series of their own. The sum that Redis gives, mem_clients_normal, is up to 1 s old.
	buffers := 0.0
	for client := range strings.Lines(clients) {
		buffers += numberIn(client, " tot-mem=")
	}
	s.values[lastingMemory] = numberIn(info, "\nused_memory:") - buffers - bytes
	s.values[lastingKeys] = lasting
	s.values[redisClients] = numberIn(info, "\nconnected_clients:")
	return s, errors.Join(err1, err2, err3, err4)
}

// numberIn is the number behind a name in what the server tells. A NaN is a growth.
func numberIn(text, name string) float64 {
	_, rest, _ := strings.Cut(text, name)
	n, err := strconv.ParseFloat(rest[:max(0, strings.IndexAny(rest, " ,\r\n"))], 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

type growth struct {
	series         int
	median, growth float64
}

func (g growth) allowed() float64 { return max(watched[g.series].least, share*g.median) }

// flat is false also for a NaN.
func (g growth) flat() bool { return g.growth <= g.allowed() }

func (g growth) String() string {
	s := watched[g.series]
	word := "flat"
	if !g.flat() {
		word = "GROWS"
	}
	unit := func(f float64) string { return strings.TrimSpace(fmt.Sprintf("%.1f %s", f/s.per, s.unit)) }
	return fmt.Sprintf("%s: %s, growth %s, allowed %s: %s", s.name, unit(g.median), unit(g.growth), unit(g.allowed()), word)
}

const enough = 6

// judge returns the growth of each series in the measured time. It leaves out the open files if the
// system hides them.
func judge(samples []sample) (verdict []growth, err error) {
	samples = measured(samples)
	if len(samples) < enough {
		return nil, fmt.Errorf("there are %d samples after the warm-up, which is too few for a verdict", len(samples))
	}
	took := samples[len(samples)-1].at - samples[0].at
	for series := range watched {
		var values, slopes []float64
		for i, s := range samples {
			values = append(values, s.values[series])
			for _, before := range samples[:i] {
				slopes = append(slopes, (s.values[series]-before.values[series])/(s.at-before.at).Seconds())
			}
		}
		// The slope is that of Theil (1950) and Sen (1968): almost three samples of ten may be wild.
		if series != files || slices.Max(values) != 0 {
			verdict = append(verdict, growth{series, median(values), median(slopes) * took.Seconds()})
		}
	}
	return verdict, nil
}

func measured(samples []sample) []sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return s.warmUp })
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

const (
	leakedBytes = 64 << 10
	leakedKeys  = 4
	leakedValue = 1 << 10
	leakedKey   = "leak:"
)

type leaks struct {
	stop  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	heap  [][]byte
	conns []net.Conn
}

func (l *leaks) add(t testing.TB, server *servers.Redis, number int64) {
	l.ended.Go(func() { <-l.stop })
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Errorf("a connection to leak: %v", err)
		return
	}
	set := []string{"MSET"}
	for n := range leakedKeys {
		set = append(set, fmt.Sprint(leakedKey, number, ":", n), strings.Repeat("x", leakedValue))
	}
	if _, err := server.Do(set...); err != nil {
		t.Errorf("a key to leak: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	l.heap = append(l.heap, make([]byte, leakedBytes))
}

// end plugs all leaks but those in Redis.
func (l *leaks) end() {
	close(l.stop)
	l.ended.Wait()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}

// The verdict sees a leak in every series, and how large it is.
func TestSoak_reportsLeaks(t *testing.T) {
	p := short
	p.lasts, p.samples, p.leakEvery, p.killEvery = 3*time.Second, 2*enough, 5, 0
	samples := p.run(t)
	verdict, err := judge(samples)
	if err != nil {
		t.Fatal(err)
	}
	after := measured(samples)
	operations := after[len(after)-1].operations - after[0].operations
	for _, g := range verdict {
		leaked := float64(operations/p.leakEvery) * watched[g.series].leak
		if t.Log(g); g.flat() || g.growth < leaked/2 {
			t.Errorf("%.0f were leaked, and the verdict is: %s", leaked, g)
		}
	}
}

// halfAnHour makes up the samples of a run at 500 operations a second; grown returns the growth of
// a series up to then.
func halfAnHour(grown func(series int, at time.Duration) float64) (samples []sample) {
	random := rand.New(rand.NewPCG(1, 2))
	for at := 10 * time.Second; at <= 30*time.Minute; at += 10 * time.Second {
		s := sample{at: at, warmUp: at < 30*time.Minute/4}
		for i, w := range watched {
			s.values[i] = w.typical*(1+random.NormFloat64()/50) + grown(i, at)
		}
		samples = append(samples, s)
	}
	return samples
}

func TestJudge(t *testing.T) {
	still := func(int, time.Duration) float64 { return 0 }
	bounds := func(share float64) func(int, time.Duration) float64 {
		return func(i int, at time.Duration) float64 {
			return share * growth{series: i, median: watched[i].typical}.allowed() * at.Minutes() / (30 * 3 / 4.)
		}
	}
	// wild samples are one in five of those between two times.
	wild := func(i int, at, from, to time.Duration) float64 {
		if at/(10*time.Second)%5 == 0 && from < at && at < to {
			return 3 * watched[i].typical
		}
		return 0
	}
	for name, test := range map[string]struct {
		flat  bool
		grown func(i int, at time.Duration) float64
	}{
		"noise":           {true, still},
		"half the bound":  {true, bounds(0.5)},
		"twice the bound": {false, bounds(2)},
		// There are none in the beginning, as if it grew.
		"wild samples": {true, func(i int, at time.Duration) float64 { return wild(i, at, 10*time.Minute, time.Hour) }},
		// There are none in the end, as if it shrank.
		"wild samples in a leak": {false, func(i int, at time.Duration) float64 {
			if w := wild(i, at, 0, 20*time.Minute); w != 0 {
				return w
			}
			return at.Minutes() / 30 * watched[i].typical
		}},
		"growth in the warm-up": {true, func(i int, at time.Duration) float64 { return watched[i].typical * min(0, at.Minutes()/7-1) }},
		"shrinking":             {true, func(i int, at time.Duration) float64 { return -watched[i].typical * at.Minutes() / 60 }},
	} {
		t.Run(name, func(t *testing.T) {
			verdict, err := judge(halfAnHour(test.grown))
			if err != nil || len(verdict) != nSeries {
				t.Fatalf("there are %d series in the verdict, want %d: %v", len(verdict), nSeries, err)
			}
			for _, g := range verdict {
				if g.flat() != test.flat {
					t.Error(g)
				}
			}
		})
	}
	samples := halfAnHour(still)
	if verdict, err := judge(samples[:len(samples)/4+enough-2]); err == nil || (growth{growth: math.NaN()}).flat() {
		t.Errorf("of so few, or flat without a number: %s", verdict)
	}
}

// nothingLeft checks, for up to limit, that a Redis whose Lockers are closed has no held lock and no
// queue, and that its other keys expire. It returns how many locks have a record.
func nothingLeft(t testing.TB, server *servers.Redis, limit time.Duration) (records int) {
	var left []string
	if !servers.Within(limit, func() bool { records, left = leftovers(t, server); return len(left) == 0 }) {
		t.Errorf("there are left: %s", strings.Join(left[:min(len(left), 20)], ", "))
	}
	if records == 0 {
		t.Error("no lock has a record: is this the server?")
	}
	return records
}

var stays = map[string]bool{"tombstones": true, "log": true, "mark": true, "ids": true}

func leftovers(t testing.TB, server *servers.Redis) (records int, left []string) {
	// One script, because this asks about a thousand keys.
	listing, err := server.Do("EVAL",
		`local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local state = string.find(key, '}:lock', 1, true) and redis.call('GETRANGE', key, 2, 2) or ''
  all[#all+1] = key .. state .. ' ' .. redis.call('PTTL', key)
end
return all`, "0")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(listing) {
		key, expires, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, kind, _ := strings.Cut(key, "}:")
		kind, _, _ = strings.Cut(kind, ":")
		ms, _ := strconv.Atoi(expires)
		record := kind == "lockr" || kind == "lockR" // of a released lock
		if !record && strings.HasPrefix(kind, "lock") && ms > 0 {
			record = time.Duration(ms)*time.Millisecond <= driver.FenceKeep // of one that has expired
		}
		if record {
			records++
		}
		if strings.HasPrefix(key, leakedKey) || expires == "-2" { // it has just expired
			continue
		}
		// A session without IdleTTL has no TTL.
		endless := strings.Contains(key, "{talk-") && !record && kind != "tombstones"
		if !stays[kind] && !record || expires == "-1" && !endless {
			left = append(left, fmt.Sprintf("%s, for %s ms", key, expires))
		}
	}
	return records, left
}
