package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/campaign/beluga"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	belugaProcesses, belugaClients, belugaSessions = 8, 4, 50
	belugaTTL                                      = time.Second
)

// belugaRun is a load on processes that run Beluga's Runner on one Redis, and all that its clients know.
type belugaRun struct {
	t       *testing.T
	program string
	config  beluga.Config
	offices []*office
	turn    atomic.Int64
	over    atomic.Bool

	mu                                   sync.Mutex
	attempts                             map[string][]conversation.Attempt // by session
	seen                                 map[int]string                    // the answers, by turn
	wrong                                []string                          // what must not happen
	kills, pauses, repeats, lost, stored int
	faults                               map[conversation.Kind]int
}

// belugaWork kills and pauses processes in turn while clients send their messages, and then compares
// the stored sessions with the answers that the clients have seen.
func belugaWork(t *testing.T, lasts time.Duration, seed uint64) {
	r := newBelugaRun(t, false)
	r.play(max(lasts, 4*time.Second), seed)
	for _, line := range r.wrong {
		t.Error(line)
	}
	if !r.hasStruck() || r.stored == 0 {
		t.Error("this tests nothing")
	}
}

// hasStruck reports whether the faults have had an effect.
func (r *belugaRun) hasStruck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kills > 0 && r.pauses > 0 && r.lost > 0
}

// Without the lock, the same load loses turns.
func TestBeluga_withoutLock_losesTurns(t *testing.T) {
	r := newBelugaRun(t, true)
	if r.play(time.Second, drawn()); r.faults[conversation.Lost] == 0 {
		t.Error("no turn is lost")
	}
}

func newBelugaRun(t *testing.T, unlocked bool) *belugaRun {
	r := &belugaRun{
		t: t, program: filepath.Join(t.TempDir(), "beluga"), attempts: make(map[string][]conversation.Attempt),
		seen: make(map[int]string), faults: make(map[conversation.Kind]int),
	}
	// Its module is built with the contract that stands in for Beluga.
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", r.program, fmt.Sprintf("-race=%t", hasRaceDetector()),
		"./lockedmemory/belugamemory/internal/faultwork")
	build.Dir = filepath.Join("..", "..", "..")
	root, err := filepath.Abs(build.Dir)
	build.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "contract.work"))
	if out, failed := build.CombinedOutput(); errors.Join(err, failed) != nil {
		t.Fatalf("the workers are not built: %v\n%s", errors.Join(err, failed), out)
	}
	r.config = beluga.Config{URL: servers.StartRedis(t).URL(), Unlocked: unlocked, TTL: belugaTTL, Think: 4 * time.Millisecond}
	return r
}

// hasRaceDetector reports whether this program was built with the race detector.
func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func (r *belugaRun) blame(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// play runs the load and its faults for some time, and judges the result.
func (r *belugaRun) play(lasts time.Duration, seed uint64) {
	var instances, clients sync.WaitGroup
	for n := range belugaProcesses {
		o := &office{run: r, n: n, waiting: make(map[int]chan beluga.Reply)}
		o.changed = sync.NewCond(&o.mu)
		r.offices = append(r.offices, o)
		instances.Go(o.employ)
	}
	for _, o := range r.offices {
		for client := range belugaClients {
			name := fmt.Sprintf("client-%d.%d", o.n, client)
			rng := stream(seed, "beluga "+name)
			clients.Go(func() {
				for !r.over.Load() {
					r.say(o, beluga.Request{
						Turn: int(r.turn.Add(1)), Session: fmt.Sprint("session-", rng.IntN(belugaSessions)), Client: name,
					})
				}
			})
		}
	}
	if r.config.Unlocked {
		time.Sleep(lasts)
	} else {
		r.strike(lasts, stream(seed, "beluga"))
	}
	r.over.Store(true)
	clients.Wait()
	for session := range r.attempts {
		r.judge(session)
	}
	for _, o := range r.offices {
		o.dismiss()
	}
	instances.Wait()
	r.t.Logf("%d messages, %d of them repeated: %d answers seen, %d turns stored; %d kills, %d pauses, %d losses of a lock; faults: %s",
		r.turn.Load(), r.repeats, len(r.seen), r.stored, r.kills, r.pauses, r.lost, list(r.faults))
}

// strike kills and pauses processes in turn, for some time and until both have had an effect. A pause
// is longer than the TTL.
func (r *belugaRun) strike(lasts time.Duration, rng *rand.Rand) {
	var paused sync.WaitGroup
	defer paused.Wait()
	start := time.Now()
	for n := 0; time.Since(start) < lasts || !r.hasStruck() && time.Since(start) < lasts+time.Minute; n++ {
		time.Sleep(between(rng, 100*time.Millisecond, 500*time.Millisecond))
		o := r.offices[rng.IntN(len(r.offices))]
		c := o.victim()
		switch {
		case c == nil: // it has no clients now
		case n%2 == 0:
			c.Kill()
			<-c.Done()
			r.count(&r.kills)
		case c.Pause() == nil:
			r.count(&r.pauses)
			o.set(func() { o.spared = true })
			paused.Go(func() {
				time.Sleep(3 * belugaTTL / 2)
				_ = c.Continue() // nothing else ends a paused process
				o.set(func() { o.spared = false })
			})
		}
	}
}

func (r *belugaRun) count(what *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*what++
}

// say sends a message until its error is not retryable, and notes what the client sees.
func (r *belugaRun) say(o *office, request beluga.Request) {
	for range 20 {
		began := now()
		answer := o.ask(request)
		acknowledged := answer.Code == ""
		r.mu.Lock()
		r.attempts[request.Session] = append(r.attempts[request.Session], conversation.Attempt{
			Turn: request.Turn, Writer: request.Client, Acknowledged: acknowledged, Begun: began, Ended: now(),
		})
		if acknowledged {
			r.seen[request.Turn] = answer.Answer
		}
		if answer.Lost {
			r.lost++
		}
		if answer.Repeat {
			r.repeats++
		}
		r.mu.Unlock()
		if !acknowledged && answer.Answer != "" {
			r.blame("the client of turn %d sees the answer %q and the error %q", request.Turn, answer.Answer, answer.Err)
		}
		if !answer.Repeat {
			return
		}
	}
}

// judge compares a stored session with what the clients know.
func (r *belugaRun) judge(session string) {
	var read beluga.Reply
	servers.Within(10*time.Second, func() bool {
		read = r.offices[0].ask(beluga.Request{Turn: -1, Session: session})
		return read.Err == ""
	})
	if read.Err != "" {
		r.blame("%s cannot be read: %s", session, read.Err)
	}
	if read.Count != nil && fmt.Sprint(read.Count) != fmt.Sprint(len(read.Stored)) {
		r.blame("%s: the State counts %v turns, and %d are stored", session, read.Count, len(read.Stored))
	}
	var messages []conversation.Message
	for i, pair := range read.Stored {
		q, a := conversation.Message{Role: conversation.Question}, conversation.Message{Role: conversation.Answer}
		_, err1 := fmt.Sscanf(pair.Question, "question %d of %s after %d turns", &q.Turn, &q.Writer, new(int))
		_, err2 := fmt.Sscanf(pair.Answer, "answer to question %d of %s after %d turns", &a.Turn, &a.Writer, &a.Seen)
		if err := errors.Join(err1, err2); err != nil {
			r.blame("%s: turn at %d: %q: %v", session, i, pair, err)
		}
		a.Seen *= 2
		messages = append(messages, q, a)
		if seen, ok := r.seen[a.Turn]; ok && seen != pair.Answer {
			r.blame("%s: the client of turn %d sees %q, and %q is stored", session, a.Turn, seen, pair.Answer)
		}
	}
	r.stored += len(read.Stored)
	for _, f := range conversation.Judge(messages, r.attempts[session]) {
		r.faults[f.Kind]++
		r.blame("%s: %s", session, f)
	}
}

// office is the place of a process. Another process follows a killed one.
type office struct {
	run *belugaRun
	n   int

	mu      sync.Mutex
	changed *sync.Cond   // child or over
	child   *child.Child // nil: none
	spared  bool
	over    bool
	waiting map[int]chan beluga.Reply // the clients of the child, by turn
}

func (o *office) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	o.changed.Broadcast()
}

// employ starts processes, one after the other, until dismiss.
func (o *office) employ() {
	defer o.dismiss() // also after a failure
	for over := false; !over; {
		c, err := child.StartProgram(context.Background(), o.run.program, beluga.Role, o.run.config, nil)
		if err != nil {
			o.run.blame("a process does not start: %v", err)
			return
		}
		o.set(func() {
			if o.child = c; o.over {
				c.Stop()
			}
		})
		for {
			var answer beluga.Reply
			if c.Receive(&answer) != nil {
				break
			}
			o.set(func() {
				client := o.waiting[answer.Turn]
				if delete(o.waiting, answer.Turn); client == nil {
					o.run.blame("a second answer to turn %d: %+v", answer.Turn, answer)
					return
				}
				client <- answer
			})
		}
		o.set(func() {
			o.child, over = nil, o.over
			for turn, client := range o.waiting { // the process has ended, so no answer follows
				client <- beluga.Reply{Turn: turn, Code: "broken", Err: "the connection is broken"}
			}
			clear(o.waiting)
		})
		if err := c.Close(); err != nil || strings.Contains(c.Stderr(), "DATA RACE") {
			o.run.blame("process %d: %v\n%s", o.n, err, c.Stderr())
			return
		}
	}
}

// ask sends a message to the process and returns what the client sees.
func (o *office) ask(r beluga.Request) beluga.Reply {
	client := make(chan beluga.Reply, 1)
	o.mu.Lock()
	for o.child == nil && !o.over {
		o.changed.Wait()
	}
	c := o.child
	if o.over {
		o.mu.Unlock()
		return beluga.Reply{Turn: r.Turn, Code: "broken", Err: "there is no process"}
	}
	o.waiting[r.Turn] = client
	o.mu.Unlock()
	_ = c.Send(r) // fails if the process has ended, which employ reports
	return <-client
}

// victim returns the process if it has clients and is not spared.
func (o *office) victim() *child.Child {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 || o.spared {
		return nil
	}
	return o.child
}

// dismiss ends the process.
func (o *office) dismiss() {
	o.set(func() {
		if o.over = true; o.child != nil {
			o.child.Stop()
		}
	})
}
