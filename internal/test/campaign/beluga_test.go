package campaign

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
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
func belugaOn(topologies []string, seed uint64) []string {
	on := slices.DeleteFunc([]string{"node", "cluster", "postgres"}, func(name string) bool { return !slices.Contains(topologies, name) })
	if n := seed % uint64(max(1, len(on))); *minutes == 0 && len(on) > 0 {
		return on[n : n+1]
	}
	return on
}

// belugaRun is a run of the workload: instances of Beluga's Runner, and their clients, which are in this
// process.
type belugaRun struct {
	t       *testing.T
	program string
	config  beluga.Config
	seed    uint64
	over    context.Context // ends when clients begin no more messages
	also    sync.WaitGroup  // redeliveries and Stops

	mu       sync.Mutex
	places   []*child.Child                 // nil: none
	spared   [belugaProcesses]bool          // it is paused
	messages [belugaSessions][]beluga.Order // that are begun
	calls    []*belugaCall                  // by N
	wrong    map[string]int                 // by kind
	counts   map[string]int
}

// belugaCall is a call of an instance. Without an end, its client does not know it.
type belugaCall struct {
	beluga.Order
	beluga.Reply
	begun, ended int64
	replied      chan struct{}
}

// belugaWork kills and pauses instances while their clients send messages, send them again, stop them and
// leave. Then it compares the stored sessions with all that the clients were told. The seed chooses the
// options of the Runners.
func belugaWork(t *testing.T, on string, lasts time.Duration, seed uint64) {
	url := ""
	if on == "postgres" {
		url = migrated.Database(t, servers.StartPostgres(t)).URL()
	} else {
		url = servers.StartTopology(t, on).URL()
	}
	config := beluga.Config{URL: url, KeepPartial: seed%2 == 0, Interruptible: seed/2%2 == 0, EndWithReader: seed/4%2 == 0}
	if r := playBeluga(t, buildBeluga(t), config, seed, max(lasts, 2*time.Second)); !r.hasStruck() || r.counts["messages "+beluga.Done] == 0 ||
		lasts > 0 && config.KeepPartial && config.Interruptible && r.counts["messages partial"] == 0 {
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
			if playBeluga(t, program, config, try, time.Second).wrong[kinds[broken]] > 0 {
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

// playBeluga runs the load with kills and pauses until all messages are sent, or for some time, and judges
// the result.
func playBeluga(t *testing.T, program string, config beluga.Config, seed uint64, lasts time.Duration) *belugaRun {
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
	go func() { clients.Wait(); close(sent) }()
	r.strike(lasts, stream(seed, "beluga"), sent)
	end()
	<-sent
	r.also.Wait()
	stop()
	took := time.Since(begun)
	stop = r.instances(1) // has all messages delivered once more, and reads
	for n := range belugaSessions {
		clients.Go(func() { r.judge(n) })
	}
	clients.Wait()
	stop()
	t.Logf("seed %d, %+v: %s; %v; faults: %s", seed, config, took.Round(100*ms), r.counts, list(r.wrong))
	return r
}

// instances keeps some instances running.
func (r *belugaRun) instances(count int) (stop func()) {
	r.places = make([]*child.Child, count)
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
	if s.End == beluga.Wrong || s.End == "" { // a Run without an error and without done
		r.find("failure", "%+v: %s", c.Order, s.Err)
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
	c := &belugaCall{begun: now(), replied: make(chan struct{})}
	r.mu.Lock()
	to := r.places[rng.IntN(len(r.places))]
	if to != nil {
		r.calls = append(r.calls, c)
		o.N = len(r.calls)
		c.Order = o
	}
	r.mu.Unlock()
	if to == nil || to.Send(o) != nil {
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

// repeat makes a call until it has its final end.
func (r *belugaRun) repeat(o beluga.Order, rng *rand.Rand) (last beluga.Reply) {
	for range 200 {
		if last = r.ask(o, rng); last.End != "" && last.End != beluga.Again {
			return last
		}
		time.Sleep(between(rng, 0, 50*ms))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.find("failure", "%+v has no end: %+v", o, last)
	return last
}

// client sends its messages of a session, one after the other.
func (r *belugaRun) client(n int) {
	of := n % belugaSessions
	for m := n / belugaSessions; m < belugaMessages && r.over.Err() == nil; m += belugaClients {
		o := beluga.Order{Do: beluga.Run, Session: belugaSession(of), Turn: of*belugaMessages + m, Writer: fmt.Sprint("client-", n)}
		o.ID, o.Text = belugaID(o.Turn), fmt.Sprintf("question %d of %s", o.Turn, o.Writer)
		rng := stream(r.seed, o.ID)
		is := func(what string, oneIn int) bool {
			hit := rng.IntN(oneIn) == 0 && r.config.Broken != beluga.NoLock
			if r.mu.Lock(); hit {
				r.counts[what]++
			}
			r.mu.Unlock()
			return hit
		}
		r.mu.Lock()
		r.messages[of] = append(r.messages[of], o)
		r.mu.Unlock()
		if is("redelivered", 10) {
			r.later(o, rng)
		}
		if is("stops", 10) {
			stop := beluga.Order{Do: beluga.Stop, Session: o.Session, Turn: o.Turn, ID: o.ID, Limit: []time.Duration{0, belugaTTL / 5, belugaTTL}[rng.IntN(3)]}
			if is("of them of a session", 4) {
				stop.ID = ""
			}
			r.later(stop, rng)
		}
		if is("clients gone", 20) {
			leaves := o
			if leaves.Leaves = rng.IntN(4); leaves.Leaves == 0 {
				leaves.Limit = between(rng, ms, 50*ms)
			}
			r.ask(leaves, rng)
			time.Sleep(sometime(rng)) // then the client comes back
		}
		r.repeat(o, rng)
	}
}

func belugaSession(n int) string { return fmt.Sprint("session-", n) }
func belugaID(turn int) string   { return fmt.Sprint("message-", turn) }

// sometime is a moment during a run, or after some.
func sometime(rng *rand.Rand) time.Duration {
	return between(rng, 0, []time.Duration{20 * ms, 20 * ms, 20 * ms, belugaTTL / 2, 2 * belugaTTL}[rng.IntN(5)])
}

func (r *belugaRun) later(o beluga.Order, rng *rand.Rand) {
	pause, own := sometime(rng), rand.New(rand.NewPCG(rng.Uint64(), 0))
	r.also.Go(func() {
		time.Sleep(pause)
		r.repeat(o, own)
	})
}

// judge delivers each message of a session once more, and compares its stored turns with all calls.
func (r *belugaRun) judge(n int) {
	session, rng := belugaSession(n), stream(r.seed, fmt.Sprint("judge ", n))
	for _, o := range r.messages[n] {
		if r.config.Broken != beluga.NoLock {
			r.repeat(o, rng)
		}
	}
	stored := r.repeat(beluga.Order{Do: beluga.Read, Session: session}, rng)
	r.mu.Lock()
	defer r.mu.Unlock()
	var runs, stops []*belugaCall
	for _, c := range r.calls {
		if c.Session == session && c.Do == beluga.Run {
			runs = append(runs, c)
		} else if c.Session == session && c.Do == beluga.Stop {
			stops = append(stops, c)
		}
	}
	r.isStored(runs, stops, r.isConversation(session, &stored, runs, stops))
}

// isConversation judges the stored turns: each was answered by a run that knew all turns before it, and that
// no Stop had ended. It returns them by number.
func (r *belugaRun) isConversation(session string, stored *beluga.Reply, runs, stops []*belugaCall) map[int]beluga.Exchange {
	if stored.Count != nil && fmt.Sprint(stored.Count) != fmt.Sprint(len(stored.Turns)) {
		r.find("lost", "%s: the State counts %v turns, and %d are stored", session, stored.Count, len(stored.Turns))
	}
	kept := make(map[int]beluga.Exchange)
	var messages []conversation.Message
	var questions []string
	for i, e := range stored.Turns {
		q, a := conversation.Message{Role: conversation.Question}, conversation.Message{Role: conversation.Answer}
		var digest string
		var size int
		var from, until int64 // of the agent
		_, err := fmt.Sscanf(e.Question, "question %d of %s after %d turns", &q.Turn, &q.Writer, &a.Seen)
		a.Turn, a.Writer = q.Turn, q.Writer
		if e.Answer != "" || !e.Partial {
			n, broken := fmt.Sscanf(e.Answer, "answer to question %d of %s after %d turns knowing %d %s from %d until %d",
				&a.Turn, &a.Writer, &a.Seen, &size, &digest, &from, &until)
			if broken != nil && !(e.Partial && n == 6) {
				err = broken
			} else if size < min(i, 10) || size > i || fmt.Sprint(size, " ", digest) != beluga.Digest(questions[i-size:]) {
				r.find("stale", "%s: the model of the turn at %d was not given the turns before it: %+v", session, i, e)
			}
		}
		if err != nil {
			r.find("torn", "%s: turn at %d: %+v: %v", session, i, e, err)
		}
		a.Seen *= 2
		for _, s := range stops {
			if s.End == beluga.Done && s.ID == "" && 0 < from && from < s.begun && until > s.ended {
				r.find("stop", "%s: %+v is stored, and its session was stopped from %d to %d", session, e, s.begun, s.ended)
			}
		}
		questions, messages, kept[q.Turn] = append(questions, e.Question), append(messages, q, a), e
	}
	var attempts []conversation.Attempt
	for _, c := range runs {
		attempts = append(attempts, conversation.Attempt{Turn: c.Turn, Writer: c.Writer, Acknowledged: c.End == beluga.Done, Begun: c.begun, Ended: c.ended})
	}
	for _, f := range conversation.Judge(messages, attempts) {
		r.find(string(f.Kind), "%s: %s", session, f)
	}
	return kept
}

// isStored judges each message: it is stored, or was stopped, and all calls were told so.
func (r *belugaRun) isStored(runs, stops []*belugaCall, kept map[int]beluga.Exchange) {
	first, told := make(map[int]int64), make(map[int]bool)
	for _, c := range runs {
		e, isKept := kept[c.Turn]
		e.Question = ""
		first[c.Turn] = cmp.Or(first[c.Turn], c.begun)
		explained, closed := false, int64(0) // by Stops: no run of it begins later
		for _, s := range stops {
			until := int64(math.MaxInt64)
			if s.End == beluga.Done {
				until = s.ended
			}
			if s.begun < c.ended && (s.ID == c.ID || s.ID == "" && until > first[c.Turn]) {
				explained, closed = true, max(closed, until)
			}
		}
		var from int64 // its stored answer
		_, text, _ := strings.Cut(e.Answer, " from ")
		_, _ = fmt.Sscan(text, &from)
		switch {
		case c.End == beluga.Done && isKept && c.Exchange != e, c.End == beluga.Stopped && isKept:
			r.find("twice", "the client of turn %d was told %+v, and %+v is stored%s", c.Turn, c.Reply, e, r.story(c))
		case (c.End == beluga.Stopped || c.Partial || c.Cut) && !explained, c.Partial && !r.config.KeepPartial,
			c.Cut && from > closed: // a redelivery while a Stop waits may be answered
			r.find("stop", "no Stop explains the end of turn %d, %+v, or it ran again%s", c.Turn, c.Reply, r.story(c))
		}
		if end := c.End; !told[c.Turn] && (end == beluga.Done || end == beluga.Stopped) {
			if told[c.Turn] = true; c.Partial {
				end = "partial"
			}
			r.counts["messages "+end]++
		}
	}
	for _, s := range stops {
		if _, isKept := kept[s.Turn]; s.End == beluga.Done && s.ID != "" && s.Stored != isKept {
			r.find("stop", "a Stop of turn %d said that it is stored: %t, and this is wrong%s", s.Turn, s.Stored, r.story(s))
		}
	}
}

// story has the calls of a turn, and the Stops of its session.
func (r *belugaRun) story(of *belugaCall) (text string) {
	for _, c := range r.calls {
		if c.Session == of.Session && (c.Turn == of.Turn || c.Do == beluga.Stop && c.ID == "") {
			text += fmt.Sprintf("\n\t%d to %d: %+v: %+v", c.begun, c.ended, c.Order, c.Reply)
		}
	}
	return text
}

func (r *belugaRun) hasStruck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts["kills"] > 0 && r.counts["pauses"] > 0 && r.counts["losses of a lock"] > 0
}

// strike kills and pauses instances in turn, for some time and until both have had an effect. A pause is
// longer than the TTL.
func (r *belugaRun) strike(lasts time.Duration, rng *rand.Rand, sent <-chan struct{}) {
	var paused sync.WaitGroup
	defer paused.Wait()
	start := time.Now()
	for n := 0; time.Since(start) < lasts || r.config.Broken == "" && !r.hasStruck() && time.Since(start) < lasts+time.Minute; n++ {
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
