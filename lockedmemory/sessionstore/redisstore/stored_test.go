package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// driverOf makes a driver over a client, and the first access of a lease to the session of the test.
// Its locks are in this process.
func driverOf(t *testing.T, client redis.UniversalClient, keep storedriver.Retention) (storedriver.Driver, storedriver.Access) {
	t.Helper()
	d, err := redisstore.NewDriver(client, &keep)
	must(t, err)
	locker, err := memlock.New(nil)
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	lease, err := locker.Acquire(t.Context(), t.Name())
	must(t, err)
	return d, storedriver.Access{Session: t.Name(), Lease: lease, Fence: time.Now().UnixMicro(), FirstAccess: true}
}

func TestSave_storedForm(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	var place string
	must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
		lease, _ := lockedmemory.Lease(ctx)
		place = fmt.Sprintf("%d-1000000", lease.Fence())
		return s.memory.SaveOnce(ctx, "a message", "q", "a")
	}))
	entries, err := s.client.Do(t.Context(), "xrange", s.log(), place, place).Slice()
	must(t, err)
	if len(entries) != 1 {
		t.Fatalf("%d entries at %s", len(entries), place)
	}
	fields := fmt.Sprint(entries[0].([]any)[1])
	op, rest, _ := strings.Cut(strings.TrimPrefix(fields, "[op "), " ")
	if len(op) != 32 || rest != `m "q" m "a" id a message]` {
		t.Errorf("the entry has %s", fields)
	}
}

// Trimming keeps the newest turn whole and no part of another one.
func TestTrim_O_turnsStayWhole(t *testing.T) {
	t.Parallel()
	s := newRig(t, &sessionstore.Retention{MaxExchanges: 5})
	for _, step := range []struct {
		saves int
		loads bool
		want  []int // exchanges of each turn
	}{
		{3, false, []int{3}},
		{2, true, []int{3, 2}},
		{1, true, []int{3, 2, 1}},
		{1, false, []int{2, 1, 1}},
		{7, false, []int{2, 1, 1, 7}},
		{0, true, []int{7}},
		{1, true, []int{7, 1}},
		{1, false, []int{1, 1}},
		{150, false, []int{1, 1, 150}},
		{1, true, []int{150, 1}},
		{0, true, []int{1}},
		{5, true, []int{1, 5}},
		{0, true, []int{5}},
	} {
		must(t, s.memory.Turn(t.Context(), func(ctx context.Context) (err error) {
			if step.loads {
				err = s.opens(ctx)
			}
			for n := range step.saves {
				err = errors.Join(err, s.memory.Save(ctx, fmt.Sprint(n), ""))
			}
			return err
		}))
		var got []int
		last := int64(0)
		for _, at := range s.places(t) {
			if at.Fence != last {
				got, last = append(got, 0), at.Fence
			}
			got[len(got)-1]++
		}
		if !slices.Equal(got, step.want) {
			t.Fatalf("after a turn of %d Saves the turns have %v exchanges, want %v", step.saves, got, step.want)
		}
	}
}

// The mark of an expired session lasts for IdleTTL and 24 hours.
func TestMark_S2_outlivesExchanges(t *testing.T) {
	t.Parallel()
	s := newRig(t, servers.SharedRedis(t), &sessionstore.Retention{IdleTTL: time.Hour})
	must(t, s.memory.Save(t.Context(), "q", "a"))
	if life := s.client.PTTL(t.Context(), s.mark()).Val(); life < 25*time.Hour-time.Minute || life > 25*time.Hour {
		t.Errorf("the mark lives for %s", life)
	}
}

// A session without an exchange leaves small keys that expire, whether a turn only loaded or
// cleared.
func TestSession_empty_isSmallAndExpires(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := newRig(t, server)
	ctx := t.Context()
	bytes := func() (sum int64) {
		for _, key := range s.client.Keys(ctx, "*").Val() {
			life, size := s.client.PTTL(ctx, key).Val(), s.client.MemoryUsage(ctx, key).Val()
			if sum += size; life <= 0 || life > 25*time.Hour || size > 300 {
				t.Errorf("%s has %d B and the TTL %s", key, size, life)
			}
		}
		return sum
	}
	must(t, s.memory.Turn(ctx, s.opens))
	bytes()
	must(t, s.memory.Save(ctx, "q", "a"))
	must(t, s.client.Expire(ctx, s.log(), time.Hour).Err()) // as with an IdleTTL before
	must(t, s.memory.Turn(ctx, s.opens))
	for _, key := range []string{s.log(), s.mark()} {
		if life := s.client.PTTL(ctx, key).Val(); life != -1 {
			t.Errorf("%s of a session without an IdleTTL has the TTL %s", key, life)
		}
	}
	must(t, s.memory.Clear(ctx))
	bytes()
	must(t, s.memory.Turn(ctx, s.opens))
	bytes()
	s.client.FlushAll(ctx)
	d, access := driverOf(t, s.client, storedriver.Retention{})
	for n := range 1000 {
		access.Session = fmt.Sprint("probed-", n)
		_, err := d.Read(ctx, storedriver.Read{Access: access, Limit: 1, ID: "id"})
		must(t, err)
	}
	if sum := bytes(); sum > 200_000 {
		t.Errorf("1,000 probed sessions have %d B", sum)
	}
}

// leaving cancels a caller when the answer to a bare XADD has come.
type leaving struct{ cancel context.CancelFunc }

func (leaving) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l leaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "xadd" {
			l.cancel()
		}
		return err
	}
}

func (leaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A caller may clear after it has left a Save. No second request of the Save may follow.
func TestSave_O_callerLeft_noSecondRequest(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: servers.SharedServer().Addr()})
	s := newRig(t, struct{ redis.UniversalClient }{client}) // which sends the calls itself
	s.turn(t, func(ctx context.Context) {
		must(t, s.memory.Save(ctx, "q", "a"))
		must(t, s.memory.Clear(ctx))
		left, cancel := context.WithCancel(ctx)
		s.client.AddHook(leaving{cancel})
		if err := s.memory.Save(left, "late", ""); !errors.Is(err, context.Canceled) {
			t.Errorf("Save: %v", err)
		}
	})
	s.wantHistory(t)
}

// fill adds exchanges to a log, each in a turn of its own, from token 1 on.
func (r *rig) fill(t *testing.T, exchanges int, messages ...string) {
	t.Helper()
	values := []any{"op", strings.Repeat("0", 32)}
	for _, m := range messages {
		values = append(values, "m", strconv.Quote(m))
	}
	pipe := r.client.Pipeline()
	for n := range exchanges {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: r.log(), ID: fmt.Sprintf("%d-1000000", n+1), Values: values})
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
}

// slow makes a rig on a server whose SLOWLOG has each command. It has a script after its commands.
func slow(t *testing.T) (r *rig, log func() []redis.SlowLog) {
	r = newRig(t, servers.StartRedis(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"))
	return r, func() []redis.SlowLog {
		all := r.client.SlowLogGet(t.Context(), -1).Val()
		slices.Reverse(all)
		must(t, r.client.Do(t.Context(), "slowlog", "reset").Err())
		return all
	}
}

// A step copies small entries by few commands. Of large ones it reads each alone: a reply of many would block
// Redis for the time of all their bytes.
func TestReplace_copy_readsSmallTogether(t *testing.T) {
	t.Parallel()
	r, log := slow(t)
	for name, c := range map[string]struct {
		exchanges, size int
		together        string
		reads           int
	}{
		"small": {200, 10, "4", 60},
		"large": {12, 30 << 10, "1", 18},
	} {
		r.client.Del(t.Context(), r.log(), r.mark())
		r.fill(t, c.exchanges, strings.Repeat("x", c.size))
		all := r.places(t)
		log()
		must(t, r.memory.Replace(t.Context(), all[len(all)-1], all[len(all)-1]))
		together, reads := "", 0
		for _, e := range log() {
			if a := e.Args; a[0] == "XRANGE" && a[1] == r.log() && len(a) == 6 && strings.HasPrefix(a[2], "(") {
				together, reads = max(together, a[5]), reads+1
			}
		}
		if together != c.together || reads > c.reads {
			t.Errorf("%s: at most %s entries in one of %d reads, want %s in %d", name, together, reads, c.together, c.reads)
		}
	}
}

// No step of a Replace copies or adds more than 50 exchanges, or 64 KB and an exchange. Each word of an
// entry counts 32 bytes more.
func TestReplace_step_atMost50Entries(t *testing.T) {
	t.Parallel()
	r, log := slow(t)
	for name, c := range map[string]struct {
		exchanges int
		messages  []string
		most      int // exchanges of a step
	}{
		"small":         {220, []string{"q", "a"}, 50},
		"large":         {20, []string{strings.Repeat("x", 30<<10)}, 3},
		"many messages": {20, slices.Repeat([]string{"xx"}, 256), 4},
	} {
		r.client.FlushAll(t.Context())
		r.fill(t, c.exchanges, c.messages...)
		all := r.places(t)
		with := slices.Repeat([]lockedmemory.Exchange[string]{exchange(c.messages...)}, c.exchanges)
		log()
		must(t, r.memory.Replace(t.Context(), all[0], all[len(all)-1], with...))
		must(t, r.memory.Replace(t.Context(), r.places(t)[0], r.places(t)[0], with[0]))
		var steps []int // entries that each has staged
		n := 0
		for _, e := range log() {
			switch {
			case e.Args[0] == "XADD" && e.Args[1] == r.stage():
				n++
			case strings.HasPrefix(e.Args[0], "eval"):
				steps, n = append(steps, n), 0
			}
		}
		if slices.Max(steps) != c.most || len(steps) < 2*c.exchanges/c.most {
			t.Errorf("%s: %d exchanges in a step, want %d; %v", name, slices.Max(steps), c.most, steps)
		}
	}
}

// Redis does not stop to free long keys that were removed: the log, the turn IDs, the inbox, and a staging.
func TestRemovedKeys_freedInBackground(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	r := newRig(t, server)
	at := lockedmemory.Place{Fence: 7, N: 1}
	for name, c := range map[string]struct {
		call func(ctx context.Context) error
		want int // keys
	}{
		"Clear":   {r.memory.Clear, 2},
		"Delete":  {r.memory.Delete, 4},
		"Replace": {func(ctx context.Context) error { return r.store.Replace(ctx, at, at) }, 2},
	} {
		r.client.Del(t.Context(), r.log(), r.mark())
		r.fill(t, 1000, strings.Repeat("x", 500))
		must(t, r.client.Copy(t.Context(), r.log(), r.stage(), 0, true).Err())
		for n := range 1000 {
			must(t, r.client.HSet(t.Context(), r.ids(), fmt.Sprint(n), "").Err())
			must(t, r.client.HSet(t.Context(), r.inbox(), fmt.Sprint(n), "").Err())
		}
		before := info(t, server, "lazyfreed_objects")
		must(t, r.memory.Turn(t.Context(), c.call))
		servers.Await(t, 5*time.Second, fmt.Sprintf("%s: %d keys freed in the background", name, c.want),
			func() bool { return info(t, server, "lazyfreed_objects") == before+c.want })
	}
}

// A first access trims 100 exchanges or 1 MiB at most, and the rest of a turn.
func TestTrim_longLog_partByPart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keep            sessionstore.Retention
		exchanges, size int
		want            []int64 // entries after each access; one is its marker
	}{
		"small":       {sessionstore.Retention{MaxExchanges: 3}, 250, 10, []int64{151, 51, 4, 4}},
		"large":       {sessionstore.Retention{MaxExchanges: 3}, 12, 300 << 10, []int64{9, 5, 4, 4}},
		"old":         {sessionstore.Retention{MaxAge: time.Hour}, 250, 10, []int64{151, 51, 2, 2}},
		"large, aged": {sessionstore.Retention{MaxAge: time.Hour}, 12, 300 << 10, []int64{9, 5, 2, 2}},
	} {
		r := newRig(t, &c.keep).named(t, t.Name()+name)
		r.fill(t, c.exchanges, strings.Repeat("x", c.size))
		var got []int64
		for range c.want {
			must(t, r.memory.Turn(t.Context(), r.opens))
			got = append(got, r.client.XLen(t.Context(), r.log()).Val())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v entries, want %v", name, got, c.want)
		}
	}
}

// A first access with nothing to trim does not read many exchanges into the memory of the script.
func TestTrim_nothingToTrim_readsLittle(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	r := newRig(t, server, &sessionstore.Retention{MaxAge: time.Hour})
	r.turn(t, func(ctx context.Context) {
		for n := range 110 { // Lua keeps equal texts once
			must(t, r.store.Save(ctx, strings.Repeat(fmt.Sprint(n, " "), 20<<10), ""))
		}
	})
	before := info(t, server, "used_memory_lua")
	must(t, r.memory.Save(t.Context(), "q", "a"))
	if more := info(t, server, "used_memory_lua") - before; more > 2<<20 {
		t.Errorf("the script needs %d bytes, of exchanges that stay", more)
	}
}

// A token that only a damaged mark can demand is refused. The error says what to check, and nothing
// is written.
func TestSave_S2_damagedMarkIsInvalid(t *testing.T) {
	t.Parallel()
	year := time.Now().Add(driver.FloorAhead).UnixMicro()
	for name, mark := range map[string]int64{
		"a year": year + time.Hour.Microseconds(), "near 2^53": driver.MaxFence - driver.FenceBlock - 1, "2^53": driver.MaxFence,
	} {
		s, ctx := newRig(t).named(t, t.Name()+name), t.Context()
		entry := []string{"op", strings.Repeat("0", 32), "m", `"q"`, "m", `"a"`}
		must(t, s.client.XAdd(ctx, &redis.XAddArgs{Stream: s.log(), ID: fmt.Sprintf("%d-1", mark), Values: entry}).Err())
		saves := func(ctx context.Context) error { return s.memory.Save(ctx, "next", "a") }
		for name, err := range map[string]error{
			"a Save": saves(ctx), "a turn that saves": s.memory.Turn(ctx, saves), "a turn that loads": s.memory.Turn(ctx, s.opens),
		} {
			if !errors.Is(err, distlock.ErrInvalidOption) || errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrUnavailable) ||
				!strings.Contains(err.Error(), "check the mark of the store") {
				t.Errorf("%s: %v, want ErrInvalidOption and what to check", name, err)
			}
		}
		if n := s.client.XLen(ctx, s.log()).Val(); n != 1 {
			t.Errorf("there are %d entries, want the damaged one alone", n)
		}
		lease, err := s.locker.Acquire(ctx, s.key)
		must(t, err)
		if lease.Fence() > year {
			t.Errorf("the next token is %d, more than a year ahead of the clock", lease.Fence())
		}
		must(t, lease.Release(ctx))
	}
}

// The store keeps an entry of another program at the place of its own removed marker.
func TestMarks_foreignData_isKept(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	ctx := t.Context()
	must(t, s.memory.Turn(ctx, s.opens))
	place := strings.Split(s.client.Get(ctx, s.mark()).Val(), ":")[1]
	s.client.Del(ctx, s.log())
	foreign := redis.XAddArgs{Stream: s.log(), ID: place, Values: []string{"another", "program"}}
	must(t, s.client.XAdd(ctx, &foreign).Err())
	var broken *sessionstore.EntryError
	if err := s.memory.Turn(ctx, s.opens); !errors.As(err, &broken) || broken.Place.String() != place {
		t.Errorf("Load: %v, want the entry at %s to be reported", err, place)
	}
	if entries := s.client.XRange(ctx, foreign.Stream, place, place).Val(); len(entries) != 1 {
		t.Errorf("the entry of another program: %v", entries)
	}
}

// A mark of another program, or of a newer version of this library, refuses each call, and stays as it is.
// The history does, too.
func TestMarks_O_unknownForm_refusesEachCall(t *testing.T) {
	t.Parallel()
	s := newRig(t, &sessionstore.Retention{MaxExchanges: 2})
	ctx := t.Context()
	must(t, s.memory.Save(ctx, "q", "a"))
	must(t, s.memory.Save(ctx, "q2", "a2"))
	mark := s.client.Get(ctx, s.mark()).Val()
	s.at = s.places(t)[0]
	for text, put := range map[string][]any{
		"newer":           {"set", s.mark(), "2" + mark[1:]},
		"another form":    {"set", s.mark(), mark + ":more"},
		"another program": {"set", s.mark(), "foreign"},
		"WRONGTYPE":       {"rpush", s.mark(), "foreign"},
	} {
		must(t, s.client.Del(ctx, s.mark()).Err())
		must(t, s.client.Do(ctx, put...).Err())
		keys := func() (all []string) {
			for _, key := range []string{s.log(), s.mark(), s.stage(), s.ids(), s.inbox()} {
				all = append(all, s.client.Dump(ctx, key).Val())
			}
			return all
		}
		before := keys()
		for name, call := range calls {
			if name == "Sessions" || name == "Inboxes" { // they read no mark
				continue
			}
			if err := call(ctx, s); !errors.Is(err, distlock.ErrRefused) ||
				(text == "newer" || text == "another form") != strings.Contains(err.Error(), "newer version of this library") {
				t.Errorf("%s, with a mark of %s: %v, want ErrRefused", name, text, err)
			}
			if !slices.Equal(keys(), before) {
				t.Errorf("%s, with a mark of %s, has written", name, text)
			}
		}
	}
}

// amid calls f once: between a command about a session and the XRANGE of a pipeline, whichever comes first.
func (r *rig) amid(proxy *faultnet.Proxy, command string, f func()) (called *atomic.Bool) {
	called = new(atomic.Bool)
	is, ofSession, reads := faultnet.Containing("\r\n"+command+"\r\n"), faultnet.Containing("session:{"), faultnet.Containing("range\r\n")
	executed := func(command string) string {
		_, stats, _ := strings.Cut(r.client.Info(context.Background(), "commandstats").Val(), "cmdstat_"+command+":calls=")
		calls, _, _ := strings.Cut(stats, ",")
		return calls
	}
	var first, before string
	proxy.HoldRequests(func(request []byte) bool {
		switch isFirst := is(request) && ofSession(request); {
		case !isFirst && !reads(request), called.Load():
		case first == "":
			if first = "xrange"; isFirst {
				first = command
			}
			before = executed(first)
		case isFirst == (first == "xrange"):
			called.Store(true)
			servers.Within(time.Second, func() bool { return executed(first) != before })
			f()
		}
		return false
	})
	return called
}

// The write of an older holder during the first Load of a new holder is refused, or is in the
// loaded history.
func TestLoad_S2_tokenBeforeRead(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t)
	other := newRig(t)
	must(t, r.memory.Turn(t.Context(), r.opens)) // loads the scripts
	old, wrote := other.stale(t, other.opens), error(nil)
	called := other.amid(proxy, "evalsha", func() { wrote = other.store.Save(old, "q", "late") })
	must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
		loaded, err := r.memory.Load(ctx, "")
		if !called.Load() || wrote == nil && !slices.Contains(loaded, "late") {
			t.Errorf("called: %t; the older holder's write was accepted, and %q loaded", called.Load(), loaded)
		}
		return err
	}))
}

// The mark outlives the log. The pinned exchanges in the mark do not.
func TestPins_expiredLog_forgotten(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	for name, end := range map[string]func(){
		"expiry": func() { must(t, s.client.Del(t.Context(), s.log()).Err()) },
		"Clear":  func() { must(t, s.memory.Clear(t.Context())) },
		"Delete": func() { must(t, s.memory.Delete(t.Context())) },
	} {
		must(t, s.memory.Save(t.Context(), "q", "a"))
		last, err := s.memory.Last(t.Context(), 1)
		must(t, err)
		last[0].Pinned = true
		must(t, s.memory.Replace(t.Context(), last[0].Place, last[0].Place, last[0]))
		pinned := func() string {
			mark := s.client.Get(t.Context(), s.mark()).Val()
			return mark[strings.LastIndexByte(mark, ':')+1:]
		}
		last, err = s.memory.Last(t.Context(), 1)
		must(t, err)
		if got := pinned(); got != last[0].Place.String()+"," {
			t.Fatalf("the mark has %q, want %s", got, last[0].Place)
		}
		end()
		if got := pinned(); got != "" && name != "expiry" {
			t.Errorf("after %s, the mark has %q", name, got)
		}
		must(t, s.memory.Save(t.Context(), "q", "a"))
		if got := pinned(); got != "" {
			t.Errorf("after %s and a Save, the mark has %q", name, got)
		}
		must(t, s.memory.Clear(t.Context()))
	}
}
