package runnerfaults

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

var (
	sessions = flag.Int("sessions", 50, "sessions that all processes share")
	runs     = flag.Int("runs", 20, "runs of each process in each session")
	strikes  = flag.Int("strikes", 24, "kills and pauses, in turn")
	seed     = flag.Uint64("seed", 0, "of the order of the sessions and of the victims; 0: random")
)

const (
	processes = 8
	clients   = 4 // of each process
	ttl       = time.Second
)

// plan is the size of a campaign.
type plan struct {
	sessions, runs, strikes int
	config                  config
}

// campaign is a load on some processes, and all that its clients know.
type campaign struct {
	plan
	slots []*slot
	done  atomic.Int64 // requests

	mu       sync.Mutex
	attempts map[string][]conversation.Attempt // by session
	seen     map[int]string                    // the answers, by turn
	failed   map[int]string                    // the last error of each turn without an answer
	report   []string                          // what must not happen
	kills    int
	pauses   int
	repeats  int // of messages
}

func (c *campaign) wrong(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report = append(c.report, fmt.Sprintf(format, a...))
}

// TestRunner_O_killsAndPauses is the campaign of the package comment.
func TestRunner_O_killsAndPauses(t *testing.T) {
	c := &campaign{plan: plan{*sessions, *runs, *strikes, config{Think: 4 * time.Millisecond}}}
	verdict := c.play(t)
	t.Log(verdict)
	for _, line := range c.report {
		t.Error(line)
	}
	if lost := verdict.errors[belugamemory.ErrLockLost]; c.kills == 0 || c.pauses == 0 || lost == 0 ||
		verdict.acknowledged == 0 {
		t.Errorf("%d kills, %d pauses, and %d runs that lost their session: the faults prove nothing",
			c.kills, c.pauses, lost)
	}
}

// Without the lock, the same load loses turns. So the campaign can fail.
func TestRunner_withoutLock_losesTurns(t *testing.T) {
	c := &campaign{plan: plan{5, 5, 2, config{Think: 4 * time.Millisecond, Unlocked: true}}}
	verdict := c.play(t)
	t.Log(verdict)
	if verdict.faults[conversation.Lost] == 0 {
		t.Error("no turn is lost")
	}
}

// play runs the load with its faults and judges the result.
func (c *campaign) play(t *testing.T) *verdict {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	start := time.Now()
	c.config.URL = servers.SharedRedis(t).URL()
	c.attempts, c.seen, c.failed = map[string][]conversation.Attempt{}, map[int]string{}, map[int]string{}
	var instances, all sync.WaitGroup
	for n := range processes {
		s := newSlot(c, n)
		c.slots = append(c.slots, s)
		instances.Go(s.employ)
	}
	turn := 0
	for n, s := range c.slots {
		var requests []request
		for session := range c.sessions {
			for range c.runs {
				requests = append(requests, request{turn, fmt.Sprint("session-", session), ""})
				turn++
			}
		}
		rng := rand.New(rand.NewPCG(*seed, uint64(n)))
		rng.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		var next atomic.Int64
		for client := range clients {
			all.Go(func() {
				for i := next.Add(1) - 1; int(i) < len(requests); i = next.Add(1) - 1 {
					r := requests[i]
					r.Client = fmt.Sprintf("client-%d.%d", n, client)
					c.say(s, r)
					c.done.Add(1)
				}
			})
		}
	}
	struck := make(chan struct{})
	go func() {
		defer close(struck)
		c.strike()
	}()
	all.Wait()
	<-struck
	for _, s := range c.slots {
		s.dismiss()
	}
	instances.Wait()
	return c.judge(t, time.Since(start))
}

// say sends a message until its error is not retryable, and notes what the client sees.
func (c *campaign) say(s *slot, r request) {
	for range 20 {
		began := time.Now()
		answer := s.ask(r)
		ended := time.Now()
		acknowledged := answer.Code == ""
		c.mu.Lock()
		c.attempts[r.Session] = append(c.attempts[r.Session],
			conversation.Attempt{Turn: r.Turn, Writer: r.Client, Acknowledged: acknowledged, Begun: began.UnixNano(),
				Ended: ended.UnixNano()})
		if acknowledged {
			c.seen[r.Turn] = answer.Answer
			delete(c.failed, r.Turn)
		} else {
			c.failed[r.Turn] = string(answer.Code)
		}
		c.mu.Unlock()
		if !acknowledged && answer.Answer != "" {
			c.wrong("the client of turn %d sees the answer %q and the error %q", r.Turn, answer.Answer, answer.Err)
		}
		if !answer.Repeat {
			return
		}
		c.mu.Lock()
		c.repeats++
		c.mu.Unlock()
	}
}

// strike kills and pauses processes in turn. The runs that are done give the moments.
func (c *campaign) strike() {
	rng := rand.New(rand.NewPCG(*seed, processes))
	total := int64(processes * c.sessions * c.runs)
	var paused sync.WaitGroup
	defer paused.Wait()
	for n := range c.strikes {
		moment := total * int64(n+1) / int64(c.strikes+1)
		for c.done.Load() < moment {
			time.Sleep(time.Millisecond)
		}
		for _, victim := range rng.Perm(len(c.slots)) { // the first one that has clients
			s := c.slots[victim]
			if n%2 == 0 && s.kill() {
				c.kills++
				break
			}
			if n%2 == 1 && s.pause() {
				c.pauses++
				paused.Go(func() {
					time.Sleep(ttl + ttl/2)
					s.resume()
				})
				break
			}
		}
	}
}

// summary lists counts by name.
func summary[K ~string](counts map[K]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(all, ", ")
}
