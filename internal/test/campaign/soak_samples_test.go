package campaign

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// sample is what the process and the server hold at a moment.
type sample struct {
	at         time.Duration
	warmUp     bool
	operations int64
	values     [nSeries]float64
}

// The series of a sample.
const (
	heap = iota
	goroutines
	files         // where the system tells
	redisMemory   // of all keys, and of Redis itself
	lastingMemory // less that of keys that expire within seconds
	redisKeys
	lastingKeys
	redisClients
	nSeries
)

// seriesNames are the names of the series in the file.
var seriesNames = [nSeries]string{"heap_bytes", "goroutines", "open_files", "redis_bytes", "redis_lasting_bytes", "redis_keys",
	"redis_lasting_keys", "redis_clients"}

// passTime counts the keys that do not expire within ARGV[1] ms, and the bytes of those that do. It
// makes the tombstones of cancelled acquisitions, which stay for 2 minutes, expire within that
// time.
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

// sampler takes samples, and writes each to the file at once.
type sampler struct {
	t       testing.TB
	server  *servers.Redis
	plan    soakPlan
	began   time.Time
	samples []sample
	file    *os.File
	csv     *csv.Writer
}

func newSampler(t testing.TB, server *servers.Redis, p soakPlan) *sampler {
	// The room for all samples is there from the start, so that they are no growth themselves.
	r := &sampler{t: t, server: server, plan: p, began: time.Now(), samples: make([]sample, 0, p.lasts/p.every+1)}
	if p.out != "" {
		var err error
		if r.file, err = os.Create(p.out); err != nil {
			t.Fatal(err)
		}
		r.csv = csv.NewWriter(r.file)
		r.write(append([]string{"seconds", "phase", "operations"}, seriesNames[:]...))
	}
	return r
}

// sample is to be called between operations.
func (r *sampler) sample(operations int64) {
	// The content of a sync.Pool stays over one collection.
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	at := time.Since(r.began)
	s := sample{at: at, warmUp: at < r.plan.warmUp, operations: operations}
	s.values[heap] = float64(memory.HeapAlloc)
	s.values[goroutines] = float64(runtime.NumGoroutine())
	s.values[files] = openFiles()
	passing, err1 := r.server.Do("EVAL", passTime, "0", fmt.Sprint(seconds.Milliseconds()))
	clients, err2 := r.server.Do("CLIENT", "LIST")
	info, err3 := r.server.Do("INFO")
	var lasting, bytes int64
	_, err4 := fmt.Sscan(passing, &lasting, &bytes)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		r.t.Errorf("the server: %v", err)
		return
	}
	buffers := 0.0
	for client := range strings.Lines(clients) {
		buffers += r.number(client, " tot-mem=")
	}
	// The buffers of the clients follow the last messages, and grow with the connections, which
	// have a series of their own. The sum that Redis gives, mem_clients_normal, is up to 1 s old.
	s.values[redisMemory] = r.number(info, "\nused_memory:") - buffers
	s.values[lastingMemory] = s.values[redisMemory] - float64(bytes)
	s.values[redisKeys] = r.number(info, "\ndb0:keys=")
	s.values[lastingKeys] = float64(lasting) // redisKeys has some that are over, and not yet removed
	s.values[redisClients] = r.number(info, "\nconnected_clients:")
	r.samples = append(r.samples, s)
	r.write(s.row())
}

// number returns the number behind a name in what the server tells.
func (r *sampler) number(text, name string) float64 {
	_, rest, _ := strings.Cut(text, name)
	n, err := strconv.ParseFloat(rest[:max(0, strings.IndexAny(rest, " ,\r\n"))], 64)
	if err != nil {
		r.t.Errorf("the server tells no number %q", name)
	}
	return n
}

// openFiles is how many files and connections this process has open; 0 where the system does not tell.
func openFiles() float64 {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return float64(len(open) - 1) // without the directory itself
}

func (s sample) row() []string {
	phase := "measured"
	if s.warmUp {
		phase = "warm-up"
	}
	row := []string{strconv.FormatFloat(s.at.Seconds(), 'f', 1, 64), phase, fmt.Sprint(s.operations)}
	for _, v := range s.values {
		row = append(row, strconv.FormatFloat(v, 'f', -1, 64))
	}
	return row
}

func (r *sampler) write(row []string) {
	if r.csv == nil {
		return
	}
	err := r.csv.Write(row)
	if r.csv.Flush(); err == nil {
		err = r.csv.Error()
	}
	if err != nil {
		r.t.Errorf("the samples: %v", err)
	}
}

func (r *sampler) close() {
	if r.file == nil {
		return
	}
	if err := r.file.Close(); err != nil {
		r.t.Errorf("the samples: %v", err)
	}
}
