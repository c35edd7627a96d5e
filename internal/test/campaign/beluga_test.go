package campaign

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/campaign/beluga"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	belugaProcesses = 4
	belugaSessions  = 20
	belugaMessages  = 500 // of a session, by belugaClients
	belugaClients   = 2
	belugaTTL       = time.Second
)

// belugaOn are the topologies of the workload. Without -minutes, the seed chooses one of those of -on.
func belugaOn(topologies []string, seed uint64) (on []string) {
	for _, name := range []string{"node", "cluster", "postgres"} {
		if slices.Contains(topologies, name) {
			on = append(on, name)
		}
	}
	if *minutes == 0 && len(on) > 0 {
		n := seed % uint64(len(on))
		on = on[n : n+1]
	}
	return on
}

// belugaRun is a run of the workload: instances of Beluga's Runner, and their clients, which are in this process.
type belugaRun struct {
	t       *testing.T
	program string
	config  beluga.Config
	seed    uint64
	over    context.Context // ends when clients begin no more messages
	also    sync.WaitGroup  // redeliveries and Stops

	mu     sync.Mutex
	places [belugaProcesses]*child.Child // nil: none
	spared [belugaProcesses]bool         // it is paused
	calls  []*belugaCall                 // by N
	wrong  map[string]int                // by kind
	counts map[string]int
}

// belugaCall is a call of an instance. It has no end if the client does not know it, as of a killed instance.
type belugaCall struct {
	beluga.Order
	beluga.Reply
	place        int
	begun, ended int64
	replied      chan struct{}
}

func belugaID(turn int) string { return fmt.Sprint("message-", turn) }

// belugaWork kills and pauses instances while their clients send messages, send them again, stop them and leave. Then
// it compares the stored sessions with all that the clients were told. The seed chooses the options of the Runners.
func belugaWork(t *testing.T, on string, lasts time.Duration, seed uint64) {
	url := ""
	if on == "postgres" {
		url = migrated.Database(t, servers.StartPostgres(t)).URL()
	} else {
		url = servers.StartTopology(t, on).URL()
	}
	config := beluga.Config{URL: url, KeepPartial: seed%2 == 0, Interruptible: seed/2%2 == 0, EndWithReader: seed/4%2 == 0}
	r := playBeluga(t, buildBeluga(t), config, seed, func(r *belugaRun, sent <-chan struct{}) {
		r.strike(max(lasts, 2*time.Second), stream(seed, "beluga"), sent)
	})
	if !r.hasStruck() || r.counts["messages "+beluga.Done] == 0 {
		t.Error("this tests nothing")
	}
}

// A run against instances that do something wrong finds it.
func TestBeluga_findsWhatIsBroken(t *testing.T) {
	t.Parallel()
	program := buildBeluga(t)
	kinds := map[string]string{
		beluga.NoLock: string(conversation.Lost), beluga.NoID: string(conversation.Doubled), beluga.NoResult: "orphan", beluga.IdleStop: "stop",
	}
	sideBySide(t, 2, slices.Sorted(maps.Keys(kinds)), func(t *testing.T, broken string) {
		for try := range uint64(10) { // no stop may meet a call
			config := beluga.Config{URL: servers.StartRedis(t).URL(), Broken: broken, KeepPartial: true, Interruptible: true}
			r := playBeluga(t, program, config, try, func(_ *belugaRun, sent <-chan struct{}) {
				select {
				case <-sent:
				case <-time.After(time.Second):
				}
			})
			if r.wrong[kinds[broken]] > 0 {
				return
			}
		}
		t.Errorf("nothing is %s", kinds[broken])
	})
}

func buildBeluga(t *testing.T) (program string) {
	info, ok := debug.ReadBuildInfo()
	race := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(t.TempDir(), "beluga")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", program, fmt.Sprintf("-race=%t", race),
		"./lockedmemory/belugamemory/internal/faultwork")
	build.Dir = root
	build.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "contract.work"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the instances are not built: %v\n%s", err, out)
	}
	return program
}

// playBeluga runs the load until faults returns, and judges the result.
func playBeluga(t *testing.T, program string, config beluga.Config, seed uint64, faults func(r *belugaRun, sent <-chan struct{})) *belugaRun {
	config.TTL = belugaTTL
	over, end := context.WithCancel(context.Background())
	r := &belugaRun{t: t, program: program, config: config, seed: seed, over: over, wrong: make(map[string]int), counts: make(map[string]int)}
	begun := time.Now()
	stop := r.instances(belugaProcesses)
	var clients sync.WaitGroup
	for n := range belugaSessions * belugaClients {
		clients.Go(func() { r.client(n) })
	}
	sent := make(chan struct{})
	go func() {
		clients.Wait()
		close(sent)
	}()
	faults(r, sent)
	end()
	<-sent
	r.also.Wait()
	stop()
	took := time.Since(begun)
	stop = r.instances(1) // has all messages delivered once more, and reads
	for n := range belugaSessions {
		clients.Go(func() { r.judge(fmt.Sprint("session-", n)) })
	}
	clients.Wait()
	stop()
	t.Logf("seed %d, %+v: %s; %v; faults: %s", seed, config, took.Round(100*ms), r.counts, list(r.wrong))
	return r
}

// instances keeps some instances running.
func (r *belugaRun) instances(count int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var places sync.WaitGroup
	for n := range count {
		places.Go(func() {
			for ctx.Err() == nil && r.instance(ctx, n) {
			}
		})
	}
	return func() { cancel(); places.Wait() }
}

// instance runs an instance until it ends, or until ctx does, and reports whether it ended as it should.
func (r *belugaRun) instance(ctx context.Context, place int) bool {
	c, err := child.StartProgram(context.Background(), r.program, beluga.Role, r.config, nil)
	if err != nil {
		r.t.Errorf("an instance does not start: %v", err)
		return false
	}
	r.mu.Lock()
	r.places[place] = c
	r.counts["instances"]++
	r.mu.Unlock()
	defer context.AfterFunc(ctx, c.Stop)()
	for {
		var s beluga.Reply
		if c.Receive(&s) != nil {
			break
		}
		r.hear(s)
	}
	err = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places[place] = nil
	if err != nil || strings.Contains(c.Stderr(), "DATA RACE") {
		r.t.Errorf("%v\n%s", err, c.Stderr())
		return false
	}
	return true
}

// hear takes a reply, also one that its client no longer waits for.
func (r *belugaRun) hear(s beluga.Reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Orphan != "" {
		r.find("orphan", "a history: %s", s.Orphan)
	}
	if s.N == 0 {
		return
	}
	c := r.calls[s.N-1]
	if c.Reply, c.ended = s, now(); s.Lost {
		r.counts["losses of a lock"]++
	}
	if s.End == beluga.Wrong {
		r.find("failure", "%s %s of %s: %s", c.Do, c.ID, c.Session, s.Err)
	}
	close(c.replied)
}

// find notes something wrong. It needs r.mu.
func (r *belugaRun) find(kind, format string, args ...any) {
	if r.wrong[kind]++; r.config.Broken == "" && r.wrong[kind] <= 20 {
		r.t.Errorf(kind+": "+format, args...)
	}
}

// ask calls an instance, and waits for the reply as long as a client does. Else the End is empty.
func (r *belugaRun) ask(o beluga.Order, rng *rand.Rand) beluga.Reply {
	r.mu.Lock()
	c := &belugaCall{place: rng.IntN(belugaProcesses), begun: now(), replied: make(chan struct{})}
	for n := 0; r.places[c.place] == nil && n < belugaProcesses; n++ {
		c.place = (c.place + 1) % belugaProcesses
	}
	to := r.places[c.place]
	if to == nil {
		r.mu.Unlock()
		return beluga.Reply{}
	}
	r.calls = append(r.calls, c)
	o.N = len(r.calls)
	c.Order = o
	r.mu.Unlock()
	if to.Send(o) != nil {
		return beluga.Reply{}
	}
	select {
	case <-c.replied:
		return c.Reply
	case <-to.Done():
	case <-time.After(between(rng, belugaTTL/2, 2*belugaTTL)):
	}
	return beluga.Reply{}
}

// client sends its messages of a session, one after the other.
func (r *belugaRun) client(n int) {
	for m := n / belugaSessions; m < belugaMessages && r.over.Err() == nil; m += belugaClients {
		turn := n%belugaSessions*belugaMessages + m
		o := beluga.Order{Do: beluga.Run, Session: fmt.Sprint("session-", n%belugaSessions), Turn: turn, ID: belugaID(turn), Writer: fmt.Sprint("client-", n)}
		o.Text = fmt.Sprintf("question %d of %s", turn, o.Writer)
		rng := stream(r.seed, o.ID)
		if rng.IntN(10) == 0 && r.config.Broken != beluga.NoLock {
			r.later(rng, "redelivered", func(rng *rand.Rand) { r.repeat(o, rng) })
		}
		if rng.IntN(10) == 0 && r.config.Broken != beluga.NoLock {
			stop := beluga.Order{Do: beluga.Stop, Session: o.Session, Turn: turn, ID: o.ID, Limit: []time.Duration{0, belugaTTL / 5, belugaTTL}[rng.IntN(3)]}
			if rng.IntN(4) == 0 {
				stop.ID = ""
			}
			r.later(rng, "stops", func(rng *rand.Rand) { r.repeat(stop, rng) })
		}
		if first := o; rng.IntN(20) == 0 && r.config.Broken != beluga.NoLock { // the client comes back
			if first.Leaves = 1 + rng.IntN(3); rng.IntN(2) == 0 {
				first.Leaves, first.Limit = 0, between(rng, ms, 50*ms)
			}
			r.count("clients gone")
			r.ask(first, rng)
			time.Sleep(sometime(rng))
		}
		r.repeat(o, rng)
	}
}

// sometime is a moment during a run, or after some.
func sometime(rng *rand.Rand) time.Duration {
	return between(rng, 0, []time.Duration{20 * ms, 20 * ms, 20 * ms, belugaTTL / 2, 2 * belugaTTL}[rng.IntN(5)])
}

func (r *belugaRun) later(rng *rand.Rand, what string, do func(*rand.Rand)) {
	pause, own := sometime(rng), rand.New(rand.NewPCG(rng.Uint64(), 0))
	r.count(what)
	r.also.Go(func() {
		time.Sleep(pause)
		do(own)
	})
}

func (r *belugaRun) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// repeat makes a call until it has its final end.
func (r *belugaRun) repeat(o beluga.Order, rng *rand.Rand) (last beluga.Reply) {
	for range 200 {
		switch last = r.ask(o, rng); last.End {
		case beluga.Done, beluga.Stopped, beluga.Wrong:
			return last
		}
		time.Sleep(between(rng, 0, 50*ms))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.find("failure", "%s %s of %s has no end: %+v", o.Do, o.ID, o.Session, last)
	return last
}

// judge delivers each message of a session once more, and compares its stored turns with all calls.
func (r *belugaRun) judge(session string) {
	rng := stream(r.seed, "judge "+session)
	of := func() (calls []*belugaCall) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.DeleteFunc(slices.Clone(r.calls), func(c *belugaCall) bool { return c.Session != session })
	}
	known := make(map[int]bool)
	for _, c := range of() {
		if o := c.Order; o.Do == beluga.Run && !known[o.Turn] && r.config.Broken != beluga.NoLock {
			known[o.Turn], o.Leaves, o.Limit = true, 0, 0
			r.repeat(o, rng)
		}
	}
	stored := r.repeat(beluga.Order{Do: beluga.Read, Session: session}, rng)
	j := &belugaJudge{belugaRun: r, session: session, kept: make(map[int]beluga.Exchange)}
	for _, c := range of() {
		if c.Do == beluga.Stop {
			j.stops = append(j.stops, c)
		} else if c.Do == beluga.Run {
			j.runs = append(j.runs, c)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	j.history(&stored)
	j.messages()
}

// belugaJudge judges a session.
type belugaJudge struct {
	*belugaRun
	session     string
	runs, stops []*belugaCall
	kept        map[int]beluga.Exchange // by turn
}

// history judges the stored turns: each was answered by a run that knew all turns before it, and no Stop ended.
func (j *belugaJudge) history(stored *beluga.Reply) {
	if stored.Count != nil && fmt.Sprint(stored.Count) != fmt.Sprint(len(stored.Turns)) {
		j.find("lost", "%s: the State counts %v turns, and %d are stored", j.session, stored.Count, len(stored.Turns))
	}
	var messages []conversation.Message
	var questions []string
	for i, e := range stored.Turns {
		q, a := conversation.Message{Role: conversation.Question}, conversation.Message{Role: conversation.Answer}
		var known, digest string
		var size int
		var from, until int64
		_, err := fmt.Sscanf(e.Question, "question %d of %s after %d turns", &q.Turn, &q.Writer, &a.Seen)
		a.Turn, a.Writer = q.Turn, q.Writer
		if e.Answer != "" || !e.Partial {
			n := 0
			n, err = fmt.Sscanf(e.Answer, "answer to question %d of %s after %d turns knowing %d %s from %d until %d", &a.Turn, &a.Writer, &a.Seen, &size, &digest, &from, &until)
			if e.Partial && n == 6 {
				err = nil
			}
			known = fmt.Sprint(size, " ", digest)
		}
		if err != nil {
			j.find("torn", "%s: turn at %d: %+v: %v", j.session, i, e, err)
		}
		if a.Seen *= 2; known != "" && (size < min(i, 10) || size > i || known != beluga.Digest(questions[i-size:])) {
			j.find("stale", "%s: the model of the turn at %d was not given the turns before it: %+v", j.session, i, e)
		}
		for _, s := range j.stops {
			if s.End == beluga.Done && s.ID == "" && from < s.begun && until > s.ended && from > 0 {
				j.find("stop", "%s: %+v is stored, and its session was stopped from %d to %d", j.session, e, s.begun, s.ended)
			}
		}
		questions, messages, j.kept[q.Turn] = append(questions, e.Question), append(messages, q, a), e
	}
	var attempts []conversation.Attempt
	for _, c := range j.runs {
		attempts = append(attempts, conversation.Attempt{Turn: c.Turn, Writer: c.Writer, Acknowledged: c.End == beluga.Done, Begun: c.begun, Ended: c.ended})
	}
	for _, f := range conversation.Judge(messages, attempts) {
		j.find(string(f.Kind), "%s: %s", j.session, f)
	}
}

// calls are those of a turn, and the Stops of its session.
func (j *belugaJudge) calls(turn int) (text string) {
	all := slices.Concat(j.runs, j.stops)
	slices.SortFunc(all, func(a, b *belugaCall) int { return int(a.begun - b.begun) })
	for _, c := range all {
		if c.Turn == turn || c.ID == "" {
			text += fmt.Sprintf("\n\t%d to %d at %d: %+v: %+v", c.begun, c.ended, c.place, c.Order, c.Reply)
		}
	}
	return text
}

// messages judges each message: it is stored, or was stopped, and all calls were told so.
func (j *belugaJudge) messages() {
	first, told := make(map[int]int64), make(map[int]bool)
	for _, c := range j.runs {
		e, isKept := j.kept[c.Turn]
		if e.Question = ""; c.Other {
			e.Tools = ""
			j.counts["streams of a run that lost to another"]++
		}
		if first[c.Turn] == 0 {
			first[c.Turn] = c.begun
		}
		explained := slices.ContainsFunc(j.stops, func(s *belugaCall) bool {
			isOf := s.ID == belugaID(c.Turn) || s.ID == "" && (s.End != beluga.Done || s.ended > first[c.Turn])
			return isOf && s.begun < c.ended
		})
		switch {
		case c.End == beluga.Done && isKept && c.Exchange != e:
			j.find("twice", "%s: the client of turn %d was told %+v, and %+v is stored%s", j.session, c.Turn, c.Exchange, e, j.calls(c.Turn))
		case c.End == beluga.Stopped && isKept:
			j.find("twice", "%s: the client of turn %d was told that it is stopped, and %+v is stored%s", j.session, c.Turn, e, j.calls(c.Turn))
		case (c.End == beluga.Stopped || c.Partial) && !explained, c.Partial && !j.config.KeepPartial:
			j.find("stop", "%s: no Stop explains the end of turn %d: %+v%s", j.session, c.Turn, c.Reply, j.calls(c.Turn))
		}
		if end := c.End; !told[c.Turn] && (end == beluga.Done || end == beluga.Stopped) {
			if told[c.Turn] = true; c.Partial {
				end = "partial"
			}
			j.counts["messages "+end]++
		}
	}
	for _, s := range j.stops {
		if _, isKept := j.kept[s.Turn]; s.End == beluga.Done && s.ID != "" && s.Stored != isKept {
			j.find("stop", "%s: a Stop of turn %d said that it is stored: %t, and this is wrong%s", j.session, s.Turn, s.Stored, j.calls(s.Turn))
		}
	}
}

func (r *belugaRun) hasStruck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts["kills"] > 0 && r.counts["pauses"] > 0 && r.counts["losses of a lock"] > 0
}

// strike kills and pauses instances in turn, until all messages are sent, or for some time and until both have had an
// effect. A pause is longer than the TTL.
func (r *belugaRun) strike(lasts time.Duration, rng *rand.Rand, sent <-chan struct{}) {
	var paused sync.WaitGroup
	defer paused.Wait()
	start := time.Now()
	for n := 0; time.Since(start) < lasts || !r.hasStruck() && time.Since(start) < lasts+time.Minute; n++ {
		select {
		case <-sent:
			return
		case <-time.After(between(rng, 200*ms, time.Second)):
		}
		place := rng.IntN(belugaProcesses)
		r.mu.Lock()
		c := r.places[place]
		switch {
		case c == nil || r.spared[place]:
		case n%2 == 0:
			c.Kill()
			r.counts["kills"]++
		case c.Pause() == nil:
			r.counts["pauses"]++
			r.spared[place] = true
			paused.Go(func() {
				time.Sleep(3 * belugaTTL / 2)
				r.mu.Lock()
				defer r.mu.Unlock()
				_ = c.Continue() // nothing else ends a paused process
				r.spared[place] = false
			})
		}
		r.mu.Unlock()
	}
}
