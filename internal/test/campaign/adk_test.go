package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/campaign/instance"
	"github.com/belugalock/belugalock/internal/test/conversation"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	adkRuns    = 20 // of a session that are acknowledged to adkClients
	adkClients = 2
	adkUsers   = 5
	adkTTL     = 2 * time.Second
	adkFolder  = "adksession/faultwork"
)

// adkSize is the size of a load.
type adkSize struct{ processes, sessions int }

// adkRun is a run of instances of ADK's Runner.
type adkRun struct {
	*instanceRun
	adkSize
}

// adkWork kills and pauses instances while their clients ask questions, and compares the stored sessions with
// all that the clients were told. The same load on ADK's own SQL service shows what the judge finds there.
func adkWork(t *testing.T, on string, lasts time.Duration, seed uint64) {
	program, database := buildInstances(t, adkFolder, "off"), migrated.Database(t, servers.StartPostgres(t)).URL()
	url := database
	if on != "postgres" {
		url = servers.StartTopology(t, on).URL()
	}
	size := adkSize{8, 50}
	if lasts == 0 {
		size = adkSize{4, 20}
	}
	r := playADK(t, program, instance.Config{URL: url}, seed, size, max(lasts/2, 2*time.Second))
	baseline := instance.Config{URL: database, Broken: instance.SQL}
	wrong := playADK(t, program, baseline, seed, size, max(lasts/2, time.Second)).wrong
	if !r.hasStruck() || r.counts["acknowledged"] == 0 || wrong[string(conversation.Stale)]+wrong["state"] == 0 {
		t.Error("this tests nothing")
	}
}

// A run against instances that do something wrong finds it.
func TestADK_findsWhatIsBroken(t *testing.T) {
	t.Parallel()
	program := buildInstances(t, adkFolder, "off")
	kinds := map[string]string{
		instance.NoCheck: string(conversation.Stale), instance.NoState: "state",
		instance.NoAnswer: string(conversation.Lost), instance.TwoAnswers: string(conversation.Doubled),
	}
	findsWhatIsBroken(t, kinds, func(t *testing.T, broken string, try uint64) *instanceRun {
		config := instance.Config{URL: servers.StartRedis(t).URL(), Broken: broken}
		return playADK(t, program, config, try, adkSize{3, 10}, 2*time.Second).instanceRun
	})
}

// playADK runs the load and judges the result.
func playADK(t *testing.T, program string, config instance.Config, seed uint64, size adkSize, lasts time.Duration) *adkRun {
	config.TTL = adkTTL
	r := &adkRun{newInstanceRun(t, program, config, seed), size}
	stop := r.instances(1)
	r.repeat(instance.Order{Do: instance.Migrate}, stream(seed, "migrate"))
	stop()
	r.play(size.processes, size.sessions*adkClients, size.sessions, lasts, r.client, r.judge)
	return r
}

// client asks questions in a session until enough of them are answered. It asks none again: ADK knows no IDs.
func (r *adkRun) client(n int) {
	rng := stream(r.seed, fmt.Sprint("client ", n))
	for turn, answered := 1000*n, 0; answered < adkRuns/adkClients && r.over.Err() == nil; turn++ {
		o := instance.Order{Do: instance.Run, Session: adkSession(n % r.sessions), Turn: turn, Writer: fmt.Sprint("client-", n)}
		o.Text = fmt.Sprintf("question %d of %s", turn, o.Writer)
		if r.ask(o, rng).End == instance.Done {
			answered++
		} else {
			time.Sleep(between(rng, 0, 50*ms))
		}
	}
}

func adkSession(n int) string { return fmt.Sprintf("user-%d/session-%d", n%adkUsers, n) }

// judge compares the stored runs of a session with all calls.
func (r *adkRun) judge(n int) {
	session := adkSession(n)
	stored := r.repeat(instance.Order{Do: instance.Read, Session: session}, stream(r.seed, fmt.Sprint("judge ", n)))
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, messages := r.isConversation(session, &stored)
	var attempts []conversation.Attempt
	for _, c := range r.calls {
		if c.Session != session || c.Do != instance.Run {
			continue
		}
		r.counts["runs"]++
		attempts = append(attempts, conversation.Attempt{
			Turn: c.Turn, Writer: c.Writer, Acknowledged: c.End == instance.Done, Begun: c.begun, Ended: c.ended,
		})
		if c.End != instance.Done {
			continue
		}
		r.counts["acknowledged"]++
		e := kept[c.Turn]
		if e.Question = ""; e.Answer != "" && e != c.Exchange {
			r.find(string(conversation.Torn), "%s: the client of turn %d was told %+v, and %+v is stored", session, c.Turn, c.Exchange, e)
		}
	}
	for _, f := range conversation.Judge(messages, attempts) {
		r.find(string(f.Kind), "%s: %s", session, f)
	}
}

// isConversation judges the stored runs: their events stand together, each model was given all events before
// its own, and no key of a state is lost. It returns the runs by number, and those with an answer.
func (r *adkRun) isConversation(session string, stored *instance.Reply) (kept map[int]instance.Exchange, messages []conversation.Message) {
	kept = make(map[int]instance.Exchange)
	answered, place := make(map[int]bool), make(map[int]int)
	answer := conversation.Message{Role: conversation.Answer}
	isAnswer := func(text string) bool {
		_, err := fmt.Sscanf(text, "answer to question %d of %s", &answer.Turn, &answer.Writer)
		return err == nil
	}
	for _, e := range stored.Turns {
		if isAnswer(e.Answer) {
			answered[answer.Turn] = true
		}
	}
	var known []string               // texts so far
	state := make(map[string]string) // by client, after these
	for i, e := range stored.Turns {
		question := conversation.Message{Role: conversation.Question}
		_, err := fmt.Sscanf(e.Question, "question %d of %s", &question.Turn, &question.Writer)
		if err == nil {
			if _, again := kept[question.Turn]; again && !answered[question.Turn] { // else Judge finds it
				r.find(string(conversation.Doubled), "%s: at %d: %+v", session, i, e)
			}
			kept[question.Turn] = e
			if answered[question.Turn] { // else its run was cut off
				place[question.Turn], messages = len(messages), append(messages, question)
			}
		}
		if isAnswer(e.Answer) {
			answer.Seen = place[answer.Turn] // the texts say what it has seen
			messages = append(messages, answer)
		}
		// Judge looks at questions and answers.
		if err != nil && e.Answer == "" || err == nil && e.Answer != "" && strings.Count(e.Tools, "\n") != 2 {
			r.find(string(conversation.Torn), "%s: at %d: %+v", session, i, e)
		}
		for text := range strings.Lines(e.Question + "\n" + e.Tools + e.Answer) {
			if text = strings.TrimSuffix(text, "\n"); text != "" {
				r.isRight(session, text, known, state)
				known = append(known, text)
			}
		}
	}
	for client, turn := range state {
		for _, scope := range instance.Scopes {
			if got := fmt.Sprint(stored.State[scope+client]); got != turn {
				r.find("state", "%s: %s%s is %s, and its last run has written %s", session, scope, client, got, turn)
			}
		}
	}
	return kept, messages
}

// isRight judges what a model or a tool says of the texts before its own, and of the state after these.
func (r *adkRun) isRight(session, text string, known []string, state map[string]string) {
	_, given, ok := strings.Cut(text, " knowing ")
	if ok && given != instance.Digest(slices.Sorted(slices.Values(known))) {
		r.find(string(conversation.Stale), "%s: %q stands after %d events", session, text, len(known))
	}
	if of, before, ok := strings.Cut(text, " before "); ok {
		turn, client, _ := strings.Cut(strings.TrimPrefix(of, "result of question "), " of ")
		was := cmp.Or(state[client], "<nil>")
		if before != was+" "+was+" "+was {
			r.find("state", "%s: %q, and its last run has written %s", session, text, was)
		}
		state[client] = turn
	}
}
