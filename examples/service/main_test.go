package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

// start starts an instance. The flags of more count, if they stand twice.
func start(t *testing.T, lock, thinking string, more ...string) (p *recipetest.Process, address string) {
	t.Helper()
	p = recipetest.Start(t, append([]string{"-lock", lock, "-ttl", "1s", "-thinking", thinking, "-listen", "127.0.0.1:0"}, more...)...)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	address, _, _ = strings.Cut(p.Await("listening on "), `"`)
	return p, address
}

func leave() bool { return true }

const conversation = `"acme"/"42"` // the key of its lock

// looker returns a Locker of the service's namespace.
func looker(t *testing.T, lock string) *distlock.Locker {
	t.Helper()
	locker, err := lockurl.Open(t.Context(), lock, &distlock.Options{Namespace: "chat"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
}

func awaitHolder(t *testing.T, locker *distlock.Locker, waiters int) {
	t.Helper()
	servers.Await(t, 30*time.Second, "the conversation is locked", func() bool {
		info, err := locker.Inspect(t.Context(), conversation)
		return err == nil && info.Held && info.Waiters == waiters
	})
}

// local returns a service in this process, and its lock.
func local(t *testing.T, stopping context.Context) (http.Handler, *distlock.Locker) {
	t.Helper()
	locker, store, err := open(t.Context(), "mem://", &distlock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	memory, err := lockedmemory.New(store, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	return (&service{memory: memory, locker: locker, stopping: stopping}).routes(), locker
}

// post sends a message to a service in this process.
func post(t *testing.T, handler http.Handler, id string) (status int) {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/conversations/"+id, strings.NewReader("Hello"))
	r.Header.Set("Idempotency-Key", "a")
	handler.ServeHTTP(w, r)
	return w.Code
}

// ask sends a message once. It calls chunk at each chunk, and goes away when that returns true.
func ask(t *testing.T, address, id, text string, chunk func() (leaves bool)) (answer Message, status int, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/conversations/42", strings.NewReader(text))
	if err != nil {
		return answer, 0, err
	}
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("Idempotency-Key", id)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer, 0, err
	}
	defer reply.Body.Close()
	status = reply.StatusCode
	event := ""
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		name, isEvent := strings.CutPrefix(lines.Text(), "event: ")
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case isEvent:
			event = name
		case isData && event == "complete":
			return answer, status, json.Unmarshal([]byte(data), &answer)
		case isData && event == "failed":
			_ = json.Unmarshal([]byte(data), &status)
			return answer, status, nil
		case isData && chunk != nil && chunk():
			return answer, status, context.Canceled
		}
	}
	if status == http.StatusOK {
		err = io.ErrUnexpectedEOF
	}
	return answer, status, err
}

// insist sends a message until it is answered, as a client does.
func insist(t *testing.T, address, id, text string, leaves bool) (answer Message) {
	var chunk func() bool
	if leaves {
		chunk = leave
	}
	servers.Await(t, time.Minute, "an answer to "+text, func() bool {
		var status int
		var err error
		if answer, status, err = ask(t, address, id, text, chunk); errors.Is(err, context.Canceled) {
			chunk = nil
		}
		return err == nil && status == http.StatusOK
	})
	return answer
}

func history(t *testing.T, address string) (messages []Message) {
	t.Helper()
	r, _ := http.NewRequest(http.MethodGet, address+"/conversations/42", nil)
	r.Header.Set("X-Tenant", "acme")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if err := json.NewDecoder(reply.Body).Decode(&messages); err != nil {
		t.Fatal(err)
	}
	return messages
}

// Two instances behind a balancer, clients that send each message twice at once, and some that leave. One
// instance is paused for longer than the TTL, the other one is killed. Each message is answered once, from
// the history of the moment, and each client sees the answer that is stored.
func TestService_pausesKillsDuplicatesDisconnects_eachMessageOnce(t *testing.T) {
	lock := servers.SharedRedis(t).URL()
	first, at1 := start(t, lock, "5ms")
	second, at2 := start(t, lock, "5ms")
	var targets [2]atomic.Pointer[url.URL]
	point := func(i int, address string) {
		target, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		targets[i].Store(target)
	}
	point(0, at1)
	point(1, at2)
	var turn atomic.Int64
	balancer := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(targets[turn.Add(1)%2].Load()) },
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	defer balancer.Close()

	const messages = 16
	var mu sync.Mutex
	seen := map[string]Message{}
	var clients sync.WaitGroup
	for i := range messages {
		text := fmt.Sprintf("Message %d", i)
		if i%4 == 0 {
			text += ": what time is it?"
		}
		for twin := range 2 {
			clients.Go(func() {
				answer := insist(t, balancer.URL, fmt.Sprint(i), text, i%5 == 0 && twin == 0)
				mu.Lock()
				defer mu.Unlock()
				if before, ok := seen[text]; ok && before != answer {
					t.Errorf("%s: two answers, %v and %v", text, before, answer)
				}
				seen[text] = answer
			})
		}
	}
	if err := first.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	if err := errors.Join(first.Signal(syscall.SIGCONT), second.Kill()); err != nil {
		t.Fatal(err)
	}
	_, at3 := start(t, lock, "5ms")
	point(1, at3)
	clients.Wait()

	all := history(t, at3)
	asked := map[string]bool{}
	for i := 0; i < len(all); {
		question, begin := all[i], i
		for i++; i < len(all) && all[i].Role != "user"; i++ {
		}
		answer := all[i-1]
		read := fmt.Sprintf("I have read %d messages.", i-1)
		if question.Role != "user" || asked[question.Text] || answer != seen[question.Text] ||
			!strings.HasPrefix(answer.Text, read) && !(answer.Cut && strings.HasPrefix(read, answer.Text)) {
			t.Errorf("%v; the client has seen %v", all[begin:i], seen[question.Text])
		}
		asked[question.Text] = true
	}
	if len(asked) != messages {
		t.Errorf("%d of %d messages are answered", len(asked), messages)
	}
}

// A client that leaves has its part of the answer kept, and gets that part when it asks again.
func TestService_clientLeaves_partIsKept(t *testing.T) {
	_, address := start(t, "mem://", "20ms")
	if _, _, err := ask(t, address, "a", "Hello", leave); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if answer := insist(t, address, "a", "Hello", false); !answer.Cut || !strings.HasPrefix(answer.Text, "I") {
		t.Errorf("%v, want a part of an answer", answer)
	}
}

// The lock is lost while the model works. The model's work ends, and the client is to repeat the message.
func TestService_lostLock_modelAborted(t *testing.T) {
	server := servers.SharedRedis(t)
	_, address := start(t, server.URL(), "10m")
	status := make(chan int, 1)
	go func() {
		_, code, err := ask(t, address, "a", "Hello", nil)
		if err != nil {
			t.Error(err)
		}
		status <- code
	}()
	awaitHolder(t, looker(t, server.URL()), 0)
	if _, err := server.Do("FLUSHDB"); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-status:
		if code != http.StatusServiceUnavailable {
			t.Errorf("status %d, want 503", code)
		}
	case <-time.After(30 * time.Second):
		t.Error("the model works on without the lock")
	}
}

func TestService_readiness(t *testing.T) {
	server := servers.StartRedis(t)
	_, address := start(t, server.URL(), "1ms")
	check := func(path string, want int) {
		t.Helper()
		servers.Await(t, 30*time.Second, fmt.Sprintf("%s answers %d", path, want), func() bool {
			reply, err := http.Get(address + path)
			if err != nil {
				return false
			}
			_ = reply.Body.Close()
			return reply.StatusCode == want
		})
	}
	check("/ready", http.StatusOK)
	server.Stop()
	check("/ready", http.StatusServiceUnavailable)
	check("/alive", http.StatusOK)
}

func TestService_statusSaysWhetherToRepeat(t *testing.T) {
	for err, want := range map[error]int{
		distlock.ErrInvalidKey: 400, lockedmemory.ErrInvalidID: 400, sessionstore.ErrTooLarge: 400, sessionstore.ErrCodec: 400,
		sessionstore.ErrIDConflict: 409, lockedmemory.ErrAnswerGone: 409, lockedmemory.ErrSuperseded: 409, distlock.ErrNotAcquired: 429,
		distlock.ErrInvalidOption: 500, errors.ErrUnsupported: 500, sessionstore.ErrBroken: 500,
		distlock.ErrUnavailable: 503, distlock.ErrLost: 503, distlock.ErrOutcomeUnknown: 503, distlock.ErrClosed: 503, distlock.ErrInterrupted: 503,
	} {
		w := httptest.NewRecorder()
		if (&events{w: w}).fail(fmt.Errorf("turn: %w", err)); w.Code != want {
			t.Errorf("%v: status %d, want %d", err, w.Code, want)
		}
	}
	_, address := start(t, "mem://", "1ms")
	insist(t, address, "a", "Hello", false)
	for _, c := range []struct {
		id, text string
		want     int
	}{{"", "Hello", 400}, {"a", "\xff", 400}, {strings.Repeat("k", 1000), "Hello", 400}, {"a", "Goodbye", 409}} {
		if _, status, err := ask(t, address, c.id, c.text, nil); err != nil || status != c.want {
			t.Errorf("%.10q under %.10q: status %d, %v, want %d", c.text, c.id, status, err, c.want)
		}
	}
	handler, _ := local(t, t.Context())
	if status := post(t, handler, strings.Repeat("2", 100_000)); status != http.StatusBadRequest {
		t.Errorf("a conversation that is too long: status %d, want 400", status)
	}
}

// The commands of the page run in its order, at addresses of the test. The first answer is that of the page,
// and two processes give it.
func TestService_commandsOfThePage(t *testing.T) {
	place := docs.Place{Page: "docs/howto/service.md", Heading: "## Run it"}
	redis := servers.SharedRedis(t).URL()
	addresses := map[string]string{} // of the page: those of the test
	var answers []string
	for _, c := range docs.Commands(t) {
		switch words := c.Words; {
		case c.Page != place.Page:
		case words[0] == "go":
			listen, args := "localhost:8080", []string{"-thinking", "5ms"}
			for i, word := range words[3:] {
				if args = append(args, strings.Replace(word, "redis://localhost:6379", redis, 1)); words[2+i] == "-listen" {
					listen = word
				}
			}
			_, addresses[listen] = start(t, "mem://", "5ms", append(args, "-listen", "127.0.0.1:0")...)
		case words[0] == "curl":
			for i, word := range words {
				if address, path, ok := strings.Cut(word, "/"); ok && addresses[address] != "" {
					words[i] = addresses[address] + "/" + path
				}
			}
			answer, err := exec.CommandContext(t.Context(), "curl", append(words[1:], "-s")...).Output()
			if err != nil {
				t.Errorf("%q: %v", words, err)
			}
			answers = append(answers, string(answer))
		}
	}
	begin, end, _ := strings.Cut(place.Blocks(t, "text")[0], "…\n")
	if len(answers) != 2 || !strings.HasPrefix(answers[0], begin) || strings.Count(answers[0], end) != 1 || strings.Count(answers[1], end) != 2 {
		t.Errorf("the answers are %q, want %q … %q, and the end twice", answers, begin, end)
	}
}
