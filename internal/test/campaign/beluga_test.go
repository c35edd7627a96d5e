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
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/campaign/beluga"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	belugaProcesses = 8
	belugaTTL       = time.Second
)

// belugaRun is a load on processes that run Beluga's Runner on one Redis, and all that its clients know.
type belugaRun struct {
	t       *testing.T
	program string
	config  beluga.Config

	mu                          sync.Mutex
	over                        bool
	places                      [belugaProcesses]*child.Child                  // nil: none
	spared                      [belugaProcesses]bool                          // it is paused
	attempts                    map[string]map[attemptKey]conversation.Attempt // by session
	seen                        map[int]string                                 // the answers, by turn
	wrong                       []string                                       // what must not happen
	runs, kills, pauses, losses int
	stored                      int
	faults                      map[conversation.Kind]int
}

type attemptKey struct {
	writer string
	begun  int64
}

// belugaWork kills and pauses processes in turn while their clients send messages, and then compares
// the stored sessions with the answers that the clients have seen.
func belugaWork(t *testing.T, lasts time.Duration, seed uint64) {
	r := newBelugaRun(t, seed)
	r.play(func() { r.strike(max(lasts, 4*time.Second), stream(seed, "beluga")) })
	for _, line := range r.wrong {
		t.Error(line)
	}
	if !r.hasStruck() || r.stored == 0 {
		t.Error("this tests nothing")
	}
}

// Without the lock, the same load loses turns.
func TestBeluga_withoutLock_losesTurns(t *testing.T) {
	r := newBelugaRun(t, drawn())
	r.config.Unlocked = true
	if r.play(func() { time.Sleep(time.Second) }); r.faults[conversation.Lost] == 0 {
		t.Error("no turn is lost")
	}
}

func newBelugaRun(t *testing.T, seed uint64) *belugaRun {
	r := &belugaRun{
		t: t, program: filepath.Join(t.TempDir(), "beluga"), attempts: make(map[string]map[attemptKey]conversation.Attempt),
		seen: make(map[int]string), faults: make(map[conversation.Kind]int),
	}
	r.config = beluga.Config{URL: servers.StartRedis(t).URL(), TTL: belugaTTL, Think: 4 * time.Millisecond, Seed: seed, Clients: 4}
	for n := range 50 {
		r.config.Sessions = append(r.config.Sessions, fmt.Sprint("session-", n))
	}
	info, ok := debug.ReadBuildInfo()
	race := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", r.program, fmt.Sprintf("-race=%t", race),
		"./lockedmemory/belugamemory/internal/faultwork")
	build.Dir = root
	build.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "contract.work"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the workers are not built: %v\n%s", err, out)
	}
	return r
}

// play runs the load until faults returns, and judges the result.
func (r *belugaRun) play(faults func()) {
	var instances sync.WaitGroup
	for n := range r.places {
		instances.Go(func() { r.fill(n) })
	}
	faults()
	r.mu.Lock()
	r.over = true
	for _, c := range r.places {
		if c != nil {
			c.Stop()
		}
	}
	r.mu.Unlock()
	instances.Wait()
	r.config.Read = true
	r.work(0)
	r.t.Logf("%d answers seen, %d turns stored; %d runs of workers, %d kills, %d pauses, %d losses of a lock; faults: %s",
		len(r.seen), r.stored, r.runs, r.kills, r.pauses, r.losses, list(r.faults))
}

// fill starts one process after the other in a place.
func (r *belugaRun) fill(place int) {
	for over := false; !over && r.work(place); {
		r.mu.Lock()
		over = r.over
		r.mu.Unlock()
	}
}

// work runs a process until it ends, and reports whether it did so as it should.
func (r *belugaRun) work(place int) bool {
	r.mu.Lock()
	r.runs++
	config := r.config
	config.Run = r.runs
	c, err := child.StartProgram(context.Background(), r.program, beluga.Role, config, nil)
	if err != nil {
		r.wrong = append(r.wrong, fmt.Sprintf("a process does not start: %v", err))
		r.mu.Unlock()
		return false
	}
	if r.places[place] = c; r.over && !config.Read {
		c.Stop()
	}
	r.mu.Unlock()
	for {
		var s beluga.Said
		if c.Receive(&s) != nil {
			break
		}
		r.mu.Lock()
		r.hear(&s)
		r.mu.Unlock()
	}
	err = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places[place] = nil
	if err != nil || strings.Contains(c.Stderr(), "DATA RACE") {
		r.blame("%v\n%s", err, c.Stderr())
		return false
	}
	return true
}

func (r *belugaRun) blame(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// hear takes what a process says. A killed one says no more of its attempts.
func (r *belugaRun) hear(s *beluga.Said) {
	a := s.Attempt
	if a == nil {
		r.judge(s)
		return
	}
	if r.attempts[s.Session] == nil {
		r.attempts[s.Session] = make(map[attemptKey]conversation.Attempt)
	}
	r.attempts[s.Session][attemptKey{a.Writer, a.Begun}] = *a
	switch {
	case a.Acknowledged:
		r.seen[a.Turn] = s.Answer
	case s.Answer != "":
		r.blame("the client of turn %d sees the answer %q and the error %q", a.Turn, s.Answer, s.Err)
	case s.Lost:
		r.losses++
	}
}

// judge compares a stored session with what the clients know.
func (r *belugaRun) judge(s *beluga.Said) {
	if s.Err != "" {
		r.blame("%s cannot be read: %s", s.Session, s.Err)
	}
	if s.Count != nil && fmt.Sprint(s.Count) != fmt.Sprint(len(s.Stored)) {
		r.blame("%s: the State counts %v turns, and %d are stored", s.Session, s.Count, len(s.Stored))
	}
	var messages []conversation.Message
	for i, pair := range s.Stored {
		q, a := conversation.Message{Role: conversation.Question}, conversation.Message{Role: conversation.Answer}
		_, err1 := fmt.Sscanf(pair.Question, "question %d of %s after %d turns", &q.Turn, &q.Writer, new(int))
		_, err2 := fmt.Sscanf(pair.Answer, "answer to question %d of %s after %d turns", &a.Turn, &a.Writer, &a.Seen)
		if err := errors.Join(err1, err2); err != nil {
			r.blame("%s: turn at %d: %q: %v", s.Session, i, pair, err)
		}
		a.Seen *= 2
		messages = append(messages, q, a)
		if seen, ok := r.seen[a.Turn]; ok && seen != pair.Answer {
			r.blame("%s: the client of turn %d sees %q, and %q is stored", s.Session, a.Turn, seen, pair.Answer)
		}
	}
	r.stored += len(s.Stored)
	var attempts []conversation.Attempt
	for _, a := range r.attempts[s.Session] {
		attempts = append(attempts, a)
	}
	for _, f := range conversation.Judge(messages, attempts) {
		r.faults[f.Kind]++
		r.blame("%s: %s", s.Session, f)
	}
}

// hasStruck reports whether the faults have had an effect.
func (r *belugaRun) hasStruck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kills > 0 && r.pauses > 0 && r.losses > 0
}

// strike kills and pauses processes in turn, for some time and until both have had an effect. A pause
// is longer than the TTL.
func (r *belugaRun) strike(lasts time.Duration, rng *rand.Rand) {
	var paused sync.WaitGroup
	defer paused.Wait()
	start := time.Now()
	for n := 0; time.Since(start) < lasts || !r.hasStruck() && time.Since(start) < lasts+time.Minute; n++ {
		time.Sleep(between(rng, 100*time.Millisecond, 500*time.Millisecond))
		place := rng.IntN(belugaProcesses)
		r.mu.Lock()
		c := r.places[place]
		switch {
		case c == nil || r.spared[place]:
		case n%2 == 0:
			c.Kill()
			r.kills++
		case c.Pause() == nil:
			r.pauses++
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
