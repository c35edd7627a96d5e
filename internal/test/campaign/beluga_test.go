package campaign

import (
	"context"
	"errors"
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
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	belugaProcesses = 8
	belugaTTL       = time.Second
)

type belugaRun struct {
	t       *testing.T
	program string
	config  beluga.Config

	mu                          sync.Mutex
	places                      [belugaProcesses]*child.Child              // nil: none
	spared                      [belugaProcesses]bool                      // it is paused
	attempts                    map[string]map[[2]any]conversation.Attempt // by session; by writer and begin
	seen                        map[int]string                             // the answers, by turn
	runs, kills, pauses, losses int
	stored                      int
	wrong                       map[conversation.Kind]int
}

// belugaWork kills and pauses processes in turn while their clients send messages, and then compares
// the stored sessions with the answers that the clients have seen.
func belugaWork(t *testing.T, lasts time.Duration, seed uint64) {
	r := playBeluga(t, beluga.Config{Seed: seed}, func(r *belugaRun) { r.strike(max(lasts, 4*time.Second), stream(seed, "beluga")) })
	if !r.hasStruck() || r.stored == 0 {
		t.Error("this tests nothing")
	}
}

// Without the lock, the same load loses turns.
func TestBeluga_withoutLock_losesTurns(t *testing.T) {
	t.Parallel()
	r := playBeluga(t, beluga.Config{Seed: drawn(), Unlocked: true}, func(*belugaRun) { time.Sleep(time.Second) })
	if r.wrong[conversation.Lost] == 0 {
		t.Error("no turn is lost")
	}
}

// playBeluga runs the load until faults returns, and judges the result.
func playBeluga(t *testing.T, config beluga.Config, faults func(*belugaRun)) *belugaRun {
	config.URL, config.TTL, config.Think, config.Clients = servers.StartRedis(t).URL(), belugaTTL, 4*time.Millisecond, 4
	for n := range 50 {
		config.Sessions = append(config.Sessions, fmt.Sprint("session-", n))
	}
	r := &belugaRun{
		t: t, program: filepath.Join(t.TempDir(), "beluga"), config: config, seen: make(map[int]string),
		attempts: make(map[string]map[[2]any]conversation.Attempt), wrong: make(map[conversation.Kind]int),
	}
	r.build()
	ctx, cancel := context.WithCancel(context.Background())
	var processes sync.WaitGroup
	for n := range r.places {
		processes.Go(func() {
			for ctx.Err() == nil && r.work(ctx, n, config) {
			}
		})
	}
	faults(r)
	cancel()
	processes.Wait()
	config.Read = true
	r.work(context.Background(), 0, config)
	t.Logf("%d answers seen, %d turns stored; %d runs of workers, %d kills, %d pauses, %d losses of a lock; faults: %s",
		len(r.seen), r.stored, r.runs, r.kills, r.pauses, r.losses, list(r.wrong))
	return r
}

func (r *belugaRun) build() {
	info, ok := debug.ReadBuildInfo()
	race := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		r.t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", r.program, fmt.Sprintf("-race=%t", race),
		"./lockedmemory/belugamemory/internal/faultwork")
	build.Dir = root
	build.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "contract.work"))
	if out, err := build.CombinedOutput(); err != nil {
		r.t.Fatalf("the workers are not built: %v\n%s", err, out)
	}
}

// work runs a process until it ends, or until ctx does, and reports whether it ended as it should.
func (r *belugaRun) work(ctx context.Context, place int, config beluga.Config) bool {
	r.mu.Lock()
	r.runs++
	config.Run = r.runs
	c, err := child.StartProgram(context.Background(), r.program, beluga.Role, config, nil)
	r.places[place] = c
	r.mu.Unlock()
	if err != nil {
		r.t.Errorf("a process does not start: %v", err)
		return false
	}
	defer context.AfterFunc(ctx, c.Stop)()
	for {
		var s beluga.Said
		if c.Receive(&s) != nil {
			break
		}
		r.hear(&s)
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

func (r *belugaRun) blame(format string, args ...any) {
	if !r.config.Unlocked {
		r.t.Errorf(format, args...)
	}
}

// hear takes what a process says. A killed one says no more of its attempts.
func (r *belugaRun) hear(s *beluga.Said) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := s.Attempt
	if a == nil {
		r.judge(s)
		return
	}
	if r.attempts[s.Session] == nil {
		r.attempts[s.Session] = make(map[[2]any]conversation.Attempt)
	}
	r.attempts[s.Session][[2]any{a.Writer, a.Begun}] = *a
	switch {
	case a.Acknowledged:
		r.seen[a.Turn] = s.Answer
	case s.Answer != "":
		r.blame("the client of turn %d sees the answer %q and the error %q", a.Turn, s.Answer, s.Err)
	case s.Lost:
		r.losses++
	}
}

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
	for _, f := range conversation.Judge(messages, slices.Collect(maps.Values(r.attempts[s.Session]))) {
		r.wrong[f.Kind]++
		r.blame("%s: %s", s.Session, f)
	}
}

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
