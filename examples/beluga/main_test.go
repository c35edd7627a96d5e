package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// asProgram makes the test binary the program, so that what is tested is built with the race detector, too.
const asProgram = "BELUGALOCK_BELUGA_EXAMPLE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	leakcheck.VerifyTestMain(m)
}

// instance is the service as a process of its own.
type instance struct {
	cmd *exec.Cmd
	url string

	mu  sync.Mutex
	log bytes.Buffer

	logged chan struct{} // closed at the end of the log
}

func start(t *testing.T, args ...string) *instance {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &instance{cmd: exec.Command(self, append([]string{"-listen", "127.0.0.1:0"}, args...)...), logged: make(chan struct{})}
	// The race detector lets every process sleep for a second before it ends, unless told not to.
	p.cmd.Env = append(os.Environ(), asProgram+"=yes", "GORACE=atexit_sleep_ms=0")
	output, err := p.cmd.StderrPipe()
	must(t, err)
	must(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.logged
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", p.url, p.text())
		}
	})
	serves := make(chan string, 1)
	go func() {
		defer close(p.logged)
		defer close(serves)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.log, lines.Text())
			p.mu.Unlock()
			if _, url, ok := strings.Cut(lines.Text(), "listening on "); ok {
				serves <- url
			}
		}
	}()
	select {
	case p.url = <-serves:
	case <-time.After(30 * time.Second):
	}
	if p.url == "" {
		t.Fatalf("it does not listen:\n%s", p.text())
	}
	return p
}

func (p *instance) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// terminate ends the instance as an orchestrator does, and returns its exit code.
func (p *instance) terminate(t *testing.T) int {
	t.Helper()
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.logged
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

type body struct {
	Answer   string
	Repeated bool
	Error    string
	Messages []struct{ Role, Text string }
}

// do is one request. A status of 0 says that no answer came.
func (p *instance) do(t *testing.T, method, path, text string, headers ...string) (int, body) {
	t.Helper()
	payload, err := json.Marshal(map[string]string{"text": text})
	must(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, bytes.NewReader(payload))
	must(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, body{Error: err.Error()}
	}
	defer response.Body.Close()
	var b body
	if err := json.NewDecoder(response.Body).Decode(&b); err != nil && err != io.EOF {
		t.Error(err)
	}
	return response.StatusCode, b
}

// history is that of a session, in which every question has its answer beside it, given after all
// those before.
func (p *instance) history(t *testing.T, session string) (questions []string) {
	t.Helper()
	status, b := p.do(t, http.MethodGet, "/sessions/"+session, "")
	if status != http.StatusOK || len(b.Messages)%2 != 0 {
		t.Fatalf("%d with %d messages, %s", status, len(b.Messages), b.Error)
	}
	for i := 0; i < len(b.Messages); i += 2 {
		q, a := b.Messages[i], b.Messages[i+1]
		want := fmt.Sprintf("Answer %d: you said %q.", i/2+1, q.Text)
		if q.Role != "human" || a.Role != "ai" || a.Text != want {
			t.Errorf("session %s, exchange %d: %s %q, %s %q", session, i/2+1, q.Role, q.Text, a.Role, a.Text)
		}
		questions = append(questions, q.Text)
	}
	return questions
}

const (
	sessions = 3
	clients  = 4 // of each session
	messages = 8 // of each client, one after the other
)

// check looks for messages that were lost or doubled, and for those of a client that are not in the
// order in which it got its answers.
func check(t *testing.T, p *instance) {
	t.Helper()
	for s := range sessions {
		next := [clients]int{}
		for _, text := range p.history(t, fmt.Sprint(s)) {
			var client, n int
			if _, err := fmt.Sscanf(text, "client %d, message %d", &client, &n); err != nil {
				t.Fatal(err)
			}
			if n != next[client] {
				t.Errorf("session %d: message %d of client %d stands where %d should", s, n, client, next[client])
			}
			next[client] = n + 1
		}
		for client, n := range next {
			if n != messages {
				t.Errorf("session %d: %d messages of client %d, want %d", s, n, client, messages)
			}
		}
	}
}

// converse has all clients send their messages. It ends when all are answered.
func converse(send func(session, client, n int)) {
	var all sync.WaitGroup
	for s := range sessions {
		for client := range clients {
			all.Go(func() {
				for n := range messages {
					send(s, client, n)
				}
			})
		}
	}
	all.Wait()
}

func pair(t *testing.T, args ...string) [2]*instance {
	t.Helper()
	args = append([]string{"-memory", testservers.StartRedis(t).URL(), "-model-delay", "20ms"}, args...)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return [2]*instance{start(t, args...), start(t, args...)}
}

func TestService_twoInstancesShareConversations(t *testing.T) {
	t.Parallel()
	both := pair(t)
	converse(func(session, client, n int) {
		path := fmt.Sprintf("/sessions/%d/messages", session)
		status, b := both[(client+n)%2].do(t, http.MethodPost, path, fmt.Sprintf("client %d, message %d", client, n))
		if status != http.StatusOK {
			t.Errorf("%d: %s", status, b.Error)
		}
	})
	check(t, both[0])
}

func TestService_messageSentAgainIsStoredOnceAndAnsweredAlike(t *testing.T) {
	t.Parallel()
	both := pair(t)
	const path, key = "/sessions/1/messages", "Idempotency-Key"

	// Both at once, and once more when both have answered.
	var all sync.WaitGroup
	var answers [4]body
	for i := range answers {
		all.Go(func() { _, answers[i] = both[i%2].do(t, http.MethodPost, path, "Hello", key, "a") })
	}
	all.Wait()
	fresh := 0
	for _, b := range answers {
		if b.Answer != `Answer 1: you said "Hello".` {
			t.Errorf("%+v", b)
		}
		if !b.Repeated {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d answers are new", fresh)
	}
	if status, b := both[1].do(t, http.MethodPost, path, "Hello again", key, "b"); status != http.StatusOK || b.Repeated {
		t.Errorf("another key: %d, %+v", status, b)
	}
	if status, b := both[0].do(t, http.MethodPost, path, "Hello", key, "a"); status != http.StatusOK || !b.Repeated || b.Answer != answers[0].Answer {
		t.Errorf("the first key again: %d, %+v", status, b)
	}
	if status, b := both[0].do(t, http.MethodPost, path, "Bye", key, "a"); status != http.StatusUnprocessableEntity {
		t.Errorf("another text: %d, %+v", status, b)
	}
	if got := both[0].history(t, "1"); len(got) != 2 {
		t.Errorf("stored are %q", got)
	}

	// The store knows the key also when the history does not.
	if status, _ := both[1].do(t, http.MethodDelete, "/sessions/1", ""); status != http.StatusNoContent {
		t.Errorf("DELETE: %d", status)
	}
	if status, b := both[0].do(t, http.MethodPost, path, "Hello again", key, "b"); status != http.StatusConflict {
		t.Errorf("a key from before the DELETE: %d, %+v", status, b)
	}
	if got := both[0].history(t, "1"); len(got) != 0 {
		t.Errorf("stored are %q", got)
	}
}

func TestService_instanceThatIsTerminatedFinishesWhatItHasBegun(t *testing.T) {
	t.Parallel()
	both := pair(t)
	var answered, elsewhere atomic.Int32
	var code atomic.Int32
	code.Store(-1)
	terminated := make(chan struct{})
	var once sync.Once
	converse(func(session, client, n int) {
		if answered.Load() == sessions*clients*messages/3 {
			once.Do(func() {
				go func() {
					defer close(terminated)
					code.Store(int32(both[1].terminate(t)))
				}()
			})
		}
		path := fmt.Sprintf("/sessions/%d/messages", session)
		text := fmt.Sprintf("client %d, message %d", client, n)
		key := fmt.Sprintf("%d/%d", client, n)
		status, b := both[(client+n)%2].do(t, http.MethodPost, path, text, "Idempotency-Key", key)
		if status == 0 { // it does not listen any more: a load balancer tries another one
			elsewhere.Add(1)
			status, b = both[0].do(t, http.MethodPost, path, text, "Idempotency-Key", key)
		}
		if status != http.StatusOK {
			t.Errorf("%d: %s", status, b.Error)
		}
		answered.Add(1)
	})
	<-terminated
	if code.Load() != 0 {
		t.Errorf("its exit code is %d", code.Load())
	}
	if elsewhere.Load() == 0 {
		t.Error("it was not terminated under load")
	}
	check(t, both[0])
}

func TestService_instanceThatIsOutOfTimeGivesItsSessionBack(t *testing.T) {
	t.Parallel()
	redis := testservers.StartRedis(t).URL()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	slow := start(t, "-memory", redis, "-model-delay", "1h", "-grace", "50ms")
	other := start(t, "-memory", redis, "-model-delay", "0s")

	answered := make(chan int, 1)
	go func() {
		status, _ := slow.do(t, http.MethodPost, "/sessions/1/messages", "Hello", "Idempotency-Key", "a")
		answered <- status
	}()
	locker, err := lockurl.Open(t.Context(), redis, nil)
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	testservers.Await(t, 10*time.Second, "the turn begins", func() bool {
		info, err := locker.Inspect(t.Context(), "1")
		return err == nil && info.Held
	})
	if code := slow.terminate(t); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	if status := <-answered; status != http.StatusServiceUnavailable {
		t.Errorf("it answered %d", status)
	}
	began := time.Now()
	if status, b := other.do(t, http.MethodPost, "/sessions/1/messages", "Hello", "Idempotency-Key", "a"); status != http.StatusOK || b.Repeated {
		t.Errorf("%d, %+v", status, b)
	}
	if took := time.Since(began); took > 10*time.Second { // the lease lasts 30 s
		t.Errorf("the other instance has waited for %s", took)
	}
}

func TestService_tenantsDoNotMeet(t *testing.T) {
	t.Parallel()
	both := pair(t)
	for i, tenant := range []string{"a", "b"} {
		if status, b := both[i].do(t, http.MethodPost, "/sessions/1/messages", "Hello", "X-Tenant-ID", tenant); b.Answer != `Answer 1: you said "Hello".` {
			t.Errorf("tenant %s: %d, %+v", tenant, status, b)
		}
	}
}

func TestService_configurationFromJSON(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("config.json")
	must(t, err)
	file := t.TempDir() + "/config.json"
	text = bytes.Replace(text, []byte("redis://localhost:6379"), []byte(testservers.StartRedis(t).URL()), 1)
	must(t, os.WriteFile(file, text, 0o600))
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	p := start(t, "-config", file, "-model-delay", "0s")
	if status, b := p.do(t, http.MethodPost, "/sessions/1/messages", "Hello"); status != http.StatusOK {
		t.Errorf("%d, %s", status, b.Error)
	}
	if status, b := p.do(t, http.MethodPost, "/sessions/1/messages", ""); status != http.StatusBadRequest {
		t.Errorf("no text: %d, %s", status, b.Error)
	}
	if status, b := p.do(t, http.MethodPost, "/sessions/%0A/messages", "Hello"); status != http.StatusBadRequest {
		t.Errorf("a session that cannot be: %d, %s", status, b.Error)
	}
	if status, b := p.do(t, http.MethodPost, "/sessions/1/messages", "Hello", "Idempotency-Key", strings.Repeat("k", 513)); status != http.StatusBadRequest {
		t.Errorf("a key that is too long: %d, %s", status, b.Error)
	}
}

func TestFail_statusIsWhatTheErrorMeans(t *testing.T) {
	coded := func(code core.ErrorCode, cause error) error { return core.NewError("", code, "", cause) }
	for _, c := range []struct {
		err            error
		without, named int // the Idempotency-Key
	}{
		{coded(core.ErrTimeout, distlock.ErrNotAcquired), 503, 503},
		{coded(core.ErrProviderDown, distlock.ErrUnavailable), 503, 503},
		{coded(core.ErrProviderDown, distlock.ErrRefused), 503, 503},
		{coded(core.ErrProviderDown, distlock.ErrOutcomeUnknown), 503, 503},
		{coded(belugamemory.ErrOutcomeUnknown, distlock.ErrOutcomeUnknown), 500, 500},
		{coded(core.ErrAuth, distlock.ErrRefused), 500, 500},
		{coded(core.ErrInvalidInput, distlock.ErrLost), 500, 503},
		{coded(core.ErrInvalidInput, distlock.ErrClosed), 503, 503},
		{context.DeadlineExceeded, 500, 503},
		{coded(core.ErrInvalidInput, lockedmemory.ErrAnswerGone), 409, 409},
		{coded(core.ErrInvalidInput, lockedmemory.ErrTurnID), 400, 400},
		{coded(core.ErrInvalidInput, sessionstore.ErrTooLarge), 400, 400},
		{coded(core.ErrInvalidInput, distlock.ErrInvalidKey), 400, 400},
		{coded(core.ErrInvalidInput, sessionstore.ErrGone), 503, 503},
		{coded(core.ErrInvalidInput, sessionstore.ErrBroken), 500, 500},
		{errOtherText, 422, 422},
		{io.ErrUnexpectedEOF, 500, 500},
	} {
		for key, want := range map[string]int{"": c.without, "a": c.named} {
			r := httptest.NewRequest(http.MethodPost, "/sessions/1/messages", nil)
			r.Header.Set("Idempotency-Key", key)
			w := httptest.NewRecorder()
			fail(w, r, c.err)
			if w.Code != want || (w.Code == 503) != (w.Header().Get("Retry-After") != "") {
				t.Errorf("%v, key %q: %d %v, want %d", c.err, key, w.Code, w.Header(), want)
			}
		}
	}
}

func TestService_redisIsDown(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	p := start(t, "-memory", server.URL()+"?max_retries=-1", "-model-delay", "0s")
	server.Kill()
	response, err := http.Post(p.url+"/sessions/1/messages", "application/json", strings.NewReader(`{"text": "Hello"}`))
	must(t, err)
	response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("%s, %v", response.Status, response.Header)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
