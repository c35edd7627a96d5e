package campaign

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/campaign/instance"
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
	belugaFolder    = "lockedmemory/belugamemory/internal/faultwork"
)

// belugaRun is a run of instances of Beluga's Runner.
type belugaRun struct {
	*instanceRun
	messages [belugaSessions][]instance.Order // that are begun
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
	config := instance.Config{URL: url, KeepPartial: seed%2 == 0, Interruptible: seed/2%2 == 0, EndWithReader: seed/4%2 == 0}
	r := playBeluga(t, buildInstances(t, belugaFolder, "contract.work"), config, seed, max(lasts, 2*time.Second))
	if !r.hasStruck() || r.counts["messages "+instance.Done] == 0 ||
		lasts > 0 && config.KeepPartial && config.Interruptible && r.counts["messages partial"] == 0 {
		t.Error("this tests nothing")
	}
}

// A run against instances that do something wrong finds it.
func TestBeluga_findsWhatIsBroken(t *testing.T) {
	t.Parallel()
	program := buildInstances(t, belugaFolder, "contract.work")
	kinds := map[string]string{
		instance.NoLock: string(conversation.Lost), instance.NoID: string(conversation.Doubled), instance.NoResult: "orphan", instance.IdleStop: "stop",
	}
	findsWhatIsBroken(t, kinds, func(t *testing.T, broken string, try uint64) *instanceRun {
		config := instance.Config{URL: servers.StartRedis(t).URL(), Broken: broken, KeepPartial: true, Interruptible: true}
		return playBeluga(t, program, config, try, time.Second).instanceRun
	})
}

// playBeluga runs the load and judges the result.
func playBeluga(t *testing.T, program string, config instance.Config, seed uint64, lasts time.Duration) *belugaRun {
	config.TTL = belugaTTL
	r := &belugaRun{instanceRun: newInstanceRun(t, program, config, seed)}
	r.play(belugaProcesses, belugaSessions*belugaClients, belugaSessions, lasts, r.client, r.judge)
	return r
}

// client sends its messages of a session, one after the other.
func (r *belugaRun) client(n int) {
	var also sync.WaitGroup // redeliveries and Stops
	defer also.Wait()
	of := n % belugaSessions
	for m := n / belugaSessions; m < belugaMessages && r.over.Err() == nil; m += belugaClients {
		o := instance.Order{Do: instance.Run, Session: belugaSession(of), Turn: of*belugaMessages + m, Writer: fmt.Sprint("client-", n)}
		o.ID, o.Text = belugaID(o.Turn), fmt.Sprintf("question %d of %s", o.Turn, o.Writer)
		rng := stream(r.seed, o.ID)
		is := func(what string, oneIn int) bool {
			hit := rng.IntN(oneIn) == 0 && r.config.Broken != instance.NoLock
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
			r.later(&also, o, rng)
		}
		if is("stops", 10) {
			stop := instance.Order{Do: instance.Stop, Session: o.Session, Turn: o.Turn, ID: o.ID, Limit: []time.Duration{0, belugaTTL / 5, belugaTTL}[rng.IntN(3)]}
			if is("of them of a session", 4) {
				stop.ID = ""
			}
			r.later(&also, stop, rng)
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

func (r *belugaRun) later(also *sync.WaitGroup, o instance.Order, rng *rand.Rand) {
	pause, own := sometime(rng), rand.New(rand.NewPCG(rng.Uint64(), 0))
	also.Go(func() {
		time.Sleep(pause)
		r.repeat(o, own)
	})
}

// judge delivers each message of a session once more, and compares its stored turns with all calls.
func (r *belugaRun) judge(n int) {
	session, rng := belugaSession(n), stream(r.seed, fmt.Sprint("judge ", n))
	for _, o := range r.messages[n] {
		if r.config.Broken != instance.NoLock {
			r.repeat(o, rng)
		}
	}
	stored := r.repeat(instance.Order{Do: instance.Read, Session: session}, rng)
	r.mu.Lock()
	defer r.mu.Unlock()
	var runs, stops []*instanceCall
	for _, c := range r.calls {
		if c.Session == session && c.Do == instance.Run {
			runs = append(runs, c)
		} else if c.Session == session && c.Do == instance.Stop {
			stops = append(stops, c)
		}
	}
	r.isStored(runs, stops, r.isConversation(session, &stored, runs, stops))
}

// isConversation judges the stored turns: each was answered by a run that knew all turns before it, and that
// no Stop had ended. It returns them by number.
func (r *belugaRun) isConversation(session string, stored *instance.Reply, runs, stops []*instanceCall) map[int]instance.Exchange {
	if stored.Count != nil && fmt.Sprint(stored.Count) != fmt.Sprint(len(stored.Turns)) {
		r.find("lost", "%s: the State counts %v turns, and %d are stored", session, stored.Count, len(stored.Turns))
	}
	kept := make(map[int]instance.Exchange)
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
			} else if size < min(i, 10) || size > i || fmt.Sprint(size, " ", digest) != instance.Digest(questions[i-size:]) {
				r.find("stale", "%s: the model of the turn at %d was not given the turns before it: %+v", session, i, e)
			}
		}
		if err != nil {
			r.find("torn", "%s: turn at %d: %+v: %v", session, i, e, err)
		}
		a.Seen *= 2
		for _, s := range stops {
			if s.End == instance.Done && s.ID == "" && 0 < from && from < s.begun && until > s.ended {
				r.find("stop", "%s: %+v is stored, and its session was stopped from %d to %d", session, e, s.begun, s.ended)
			}
		}
		questions, messages, kept[q.Turn] = append(questions, e.Question), append(messages, q, a), e
	}
	var attempts []conversation.Attempt
	for _, c := range runs {
		attempts = append(attempts, conversation.Attempt{Turn: c.Turn, Writer: c.Writer, Acknowledged: c.End == instance.Done, Begun: c.begun, Ended: c.ended})
	}
	for _, f := range conversation.Judge(messages, attempts) {
		r.find(string(f.Kind), "%s: %s", session, f)
	}
	return kept
}

// isStored judges each message: it is stored, or was stopped, and all calls were told so.
func (r *belugaRun) isStored(runs, stops []*instanceCall, kept map[int]instance.Exchange) {
	first, told := make(map[int]int64), make(map[int]bool)
	for _, c := range runs {
		e, isKept := kept[c.Turn]
		e.Question = ""
		first[c.Turn] = cmp.Or(first[c.Turn], c.begun)
		explained, closed := false, int64(0) // by Stops: no run of it begins later
		for _, s := range stops {
			until := int64(math.MaxInt64)
			if s.End == instance.Done {
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
		case c.End == instance.Done && isKept && c.Exchange != e, c.End == instance.Stopped && isKept:
			r.find("twice", "the client of turn %d was told %+v, and %+v is stored%s", c.Turn, c.Reply, e, r.story(c))
		case (c.End == instance.Stopped || c.Partial || c.Cut) && !explained, c.Partial && !r.config.KeepPartial,
			c.Cut && from > closed: // a redelivery while a Stop waits may be answered
			r.find("stop", "no Stop explains the end of turn %d, %+v, or it ran again%s", c.Turn, c.Reply, r.story(c))
		}
		if end := c.End; !told[c.Turn] && (end == instance.Done || end == instance.Stopped) {
			if told[c.Turn] = true; c.Partial {
				end = "partial"
			}
			r.counts["messages "+end]++
		}
	}
	for _, s := range stops {
		if _, isKept := kept[s.Turn]; s.End == instance.Done && s.ID != "" && s.Stored != isKept {
			r.find("stop", "a Stop of turn %d said that it is stored: %t, and this is wrong%s", s.Turn, s.Stored, r.story(s))
		}
	}
}

// story has the calls of a turn, and the Stops of its session.
func (r *belugaRun) story(of *instanceCall) (text string) {
	for _, c := range r.calls {
		if c.Session == of.Session && (c.Turn == of.Turn || c.Do == instance.Stop && c.ID == "") {
			text += fmt.Sprintf("\n\t%d to %d: %+v: %+v", c.begun, c.ended, c.Order, c.Reply)
		}
	}
	return text
}
