package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

// asProgram makes the test binary the program, so that its processes have the race detector, too.
const asProgram = "BELUGALOCK_BELUGA_EXAMPLE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	leakcheck.VerifyTestMain(m)
}

// program is the balancer with its instances.
type program struct {
	cmd     *exec.Cmd
	address string
	out     strings.Builder // until ended, as the log
	log     strings.Builder
	ended   chan struct{}
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	self, err := os.Executable()
	must(t, err)
	p := &program{cmd: exec.Command(self, append([]string{"-listen", "127.0.0.1:0"}, args...)...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=yes", "GORACE=atexit_sleep_ms=0")
	p.cmd.Stdout = &p.out
	output, err := p.cmd.StderrPipe()
	must(t, err)
	must(t, p.cmd.Start())
	listens := make(chan string, 1)
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			fmt.Fprintln(&p.log, lines.Text())
			if _, address, ok := strings.Cut(lines.Text(), "listening on http://"); ok {
				listens <- address
			}
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(time.Minute):
			t.Error("the program does not end")
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	select {
	case p.address = <-listens:
	case <-p.ended:
		t.Fatal("the program has ended")
	}
	return p
}

// serving waits for both instances.
func serving(t *testing.T, args ...string) *program {
	t.Helper()
	p := start(t, args...)
	servers.Await(t, time.Minute, "both instances answer", func() bool {
		for range 2 {
			if status, _ := p.request(t, http.MethodGet, "none", ""); status != http.StatusNotFound {
				return false
			}
		}
		return true
	})
	return p
}

// client is the client of a chat.
func (p *program) client(chat string) client { return client{"http://" + p.address, "/chats/" + chat} }

// request sends a question under itself as its ID.
func (p *program) request(t *testing.T, method, chat, question string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.address+"/chats/"+chat, strings.NewReader(question))
	must(t, err)
	r.Header.Set(messageID, question)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(text)
}

// The commands run as printed, in one shell, against an address of the test.
func TestReadme_commandsPrintTheirOutput(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	must(t, err)
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "200ms")
	script := "set -e\n"
	var want []string // of each block
	for _, block := range regexp.MustCompile("(?s)```(bash|output)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		switch {
		case block[1] == "output":
			want[len(want)-1] = block[2]
		case strings.Contains(block[2], "curl"):
			script += strings.ReplaceAll(block[2], "localhost:8080", p.address) + "echo end of block\n"
			want = append(want, "")
		}
	}
	shell := exec.Command("bash", "-c", script)
	shell.Dir = t.TempDir()
	printed, err := shell.Output()
	must(t, err)
	blocks := strings.Split(regexp.MustCompile(`instance \d+`).ReplaceAllString(string(printed), "instance 4711"), "end of block\n")
	if len(want) != 8 || len(blocks) != 9 {
		t.Fatalf("%d blocks have printed\n%s", len(want), printed)
	}
	for i, text := range want {
		got, wanted := strings.Fields(blocks[i]), strings.Fields(text)
		slices.Sort(got)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("block %d printed\n%s\nand the page says\n%s", i+1, blocks[i], text)
		}
	}
}

func TestService_messagesAtOnce_noneIsLost(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "5ms")
	const messages = 24
	var all sync.WaitGroup
	for i := range messages {
		all.Go(func() {
			status, text := p.request(t, http.MethodPost, "1", fmt.Sprintf("Where is order %d?", i))
			if status != http.StatusOK || !strings.Contains(text, fmt.Sprintf("event: done\ndata: {\"text\":\"Order %d arrives on Friday, ", i)) {
				t.Errorf("message %d: %d, %s", i, status, text)
			}
		})
	}
	all.Wait()
	_, text := p.request(t, http.MethodGet, "1", "")
	for i := range messages {
		if n := strings.Count(text, fmt.Sprintf("Where is order %d? → Order %d arrives on Friday, ", i, i)); n != 1 {
			t.Errorf("message %d is stored %d times", i, n)
		}
	}
}

func TestService_terminated_finishesItsAnswers(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "100ms")
	r, err := p.client("1").send(t.Context(), http.MethodPost, "/chats/1", "1", "Where is order 7?", func(string) error {
		return p.cmd.Process.Signal(syscall.SIGTERM)
	})
	if err != nil || r.Type != "done" {
		t.Errorf("%v, %s", err, r.body)
	}
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
}

// The tour is each promise of this program, and fails if one is broken.
func TestTour_isAsItShouldBe(t *testing.T) {
	t.Parallel()
	for _, server := range []string{servers.StartRedis(t).URL(), ""} { // "": the Redis in the program
		t.Run("server="+server, func(t *testing.T) {
			t.Parallel()
			p := start(t, "-server", server, "-tour", "-model-delay", "200ms")
			<-p.ended
			tooLong := regexp.MustCompile(`.{81}`) // for a terminal
			code, out := p.cmd.ProcessState.ExitCode(), p.out.String()
			if code != 0 || strings.Count(out, "\n") != 5 || tooLong.MatchString(out) {
				t.Errorf("the exit code is %d, and the output\n%s", code, out)
			}
		})
	}
}

// A service without any promise: each message is answered and stored again, whole, and without a stop.
func TestTour_brokenService_isWrong(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		w.Header().Set("Instance", "4711")
		if r.Method == http.MethodPost && len(question) > 0 {
			const text = "event: text\ndata: {\"text\":\"instance 4711\"}\n\n"
			fmt.Fprint(w, text, text, text, "event: done\ndata: {\"text\":\"instance 4711\"}\n\n")
			return
		}
		for _, order := range []int{1, 1, 2, 2, 3, 3, 4, 4} {
			fmt.Fprintf(w, "Where is order %d? → instance 4711\n", order)
		}
	}))
	t.Cleanup(broken.Close)
	var out strings.Builder
	err := tour(t.Context(), broken.URL, &out)
	if n := strings.Count(out.String(), "WRONG: "); err == nil || n < 4 { // it may be a stream
		t.Errorf("%v, %d lines are wrong:\n%s", err, n, &out)
	}
}

// Of three deliveries at once, one runs the agent: its text comes in pieces.
func TestService_repeated_isAnsweredOnce(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "20ms")
	replies := make([]reply, 3)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i], _ = p.client("1").answer(t.Context(), "1", "Where is order 7?", nil) })
	}
	all.Wait()
	ran := 0
	for _, r := range replies {
		if r.Type != "done" || r.Text != replies[0].Text || r.Text == "" {
			t.Errorf("the client got %s", r.body)
		}
		if r.pieces > 1 {
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("the agent ran %d times", ran)
	}
	must(t, p.client("1").shows(t.Context(), "Where is order 7?", replies[0].Text))
}

func TestService_streams_doneAfterStored(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "100ms")
	during := "?"
	r, err := p.client("1").send(t.Context(), http.MethodPost, "/chats/1", "1", "Where is order 7?", func(string) error {
		_, during = p.request(t, http.MethodGet, "1", "")
		return nil
	})
	if err != nil || during != "" || r.Type != "done" {
		t.Errorf("%v, in mid-stream the chat was %q, and then came %s", err, during, r.body)
	}
	if _, text := p.request(t, http.MethodGet, "1", ""); !strings.Contains(text, " → "+r.Text+"\n") {
		t.Errorf("after done, the chat is %s", text)
	}
}

// What the client saw is not kept.
func TestService_redisDiesInMidStream_errorHasCode(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	p := serving(t, "-server", redis.URL()+"?max_retries=-1", "-model-delay", "20ms")
	r, err := p.client("1").send(t.Context(), http.MethodPost, "/chats/1", "1", "Where is order 7?", func(string) error {
		redis.Kill()
		return nil
	})
	known := r.Code == core.ErrProviderDown || r.Code == belugamemory.ErrLockLost
	if err != nil || r.Type != "error" || !r.Again || !known {
		t.Errorf("%v, %s", err, r.body)
	}
}

// With an ID and without one, the other instance stops the run. The repeated message gets the same words.
func TestService_stopElsewhere_keepsPartial(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "200ms")
	for chat, stopped := range map[string]string{"message": "1", "session": ""} {
		t.Run(chat, func(t *testing.T) {
			c := p.client(chat)
			var stop reply
			r, err := c.answer(t.Context(), "1", "Where is order 7?", func(string) (err error) {
				stop, err = c.send(t.Context(), http.MethodPost, c.chat+"/stop", stopped, "", nil)
				return err
			})
			if err != nil || !r.Stopped || strings.HasSuffix(r.Text, ".") || stop.instance == r.instance {
				t.Errorf("%v, instance %s was stopped by %s: %s", err, r.instance, stop.instance, r.body)
			}
			if (stop.body == "{\"stored\":true}\n") != (stopped != "") {
				t.Errorf("the stop has answered %q", stop.body)
			}
			must(t, c.shows(t.Context(), "Where is order 7?", r.Text+" (stopped)"))
			again, err := c.answer(t.Context(), "1", "Where is order 7?", nil)
			if err != nil || !again.Stopped || again.Text != r.Text || again.pieces > 1 {
				t.Errorf("%v, the repeated message got %s", err, again.body)
			}
		})
	}
}

// A stop can be faster than its message.
func TestService_stopFirst_messageIsNeverAnswered(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "200ms")
	c := p.client("1")
	stop, err := c.send(t.Context(), http.MethodPost, c.chat+"/stop", "1", "", nil)
	must(t, err)
	r, err := c.send(t.Context(), http.MethodPost, c.chat, "1", "Hello", nil)
	if err != nil || stop.body != "{\"stored\":false}\n" || r.Code != belugamemory.ErrInterrupted || r.Again {
		t.Errorf("%v, %s%s", err, stop.body, r.body)
	}
}

func TestService_redisDown_saysToTryAgain(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	p := serving(t, "-server", redis.URL()+"?max_retries=-1", "-model-delay", "0s")
	redis.Kill()
	if status, text := p.request(t, http.MethodPost, "1", "Hello"); status != http.StatusOK || !strings.Contains(text, `{"code":"provider_unavailable","again":true}`) {
		t.Errorf("%d, %s", status, text)
	}
	if status, text := p.request(t, http.MethodGet, "1", ""); status != http.StatusServiceUnavailable {
		t.Errorf("%d, %s", status, text)
	}
}

func TestService_wrongInput(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "0s")
	if status, text := p.request(t, http.MethodPost, "1", ""); status != http.StatusBadRequest {
		t.Errorf("no question: %d, %s", status, text)
	}
	if _, text := p.request(t, http.MethodPost, "%0A", "Hello"); !strings.Contains(text, `event: error
data: {"code":"invalid_input"}`) {
		t.Errorf("the ID of the chat is a line break: %s", text)
	}
}

// The instances end at once, so the balancer ends with the error of an instance.
func TestBalancer_wrongServer_ends(t *testing.T) {
	t.Parallel()
	p := start(t, "-server", "ftp://localhost")
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.log.String(), "no instance listens") ||
		!strings.Contains(p.log.String(), "the scheme \"ftp\" is not known") {
		t.Errorf("the exit code is %d", code)
	}
}

func TestBalancer_noInstance_asksToTryAgain(t *testing.T) {
	t.Parallel()
	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := nowhere.Addr().String()
	must(t, nowhere.Close())
	unstarted, dead := &balancer{}, &balancer{}
	dead.addresses[0].Store(address)
	dead.addresses[1].Store(address)
	for _, b := range []*balancer{unstarted, dead} {
		w := httptest.NewRecorder()
		b.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/chats/1", strings.NewReader("Hello")))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d, %s", w.Code, w.Body)
		}
	}
}

// An instance that dies before its first event leaves no stream that could end with an event.
func TestBalancer_instanceDiesEarly_doesNotSendTwice(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	dying := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(dying.Close)
	b := &balancer{}
	for i := range b.addresses {
		b.addresses[i].Store(dying.Listener.Addr().String())
	}
	w := httptest.NewRecorder()
	b.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/chats/1", strings.NewReader("Hello")))
	if w.Code != http.StatusServiceUnavailable || requests.Load() != 1 {
		t.Errorf("%d after %d requests: %s", w.Code, requests.Load(), w.Body)
	}
}

func TestService_otlp_sendsSpans(t *testing.T) {
	t.Parallel()
	var traces atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" {
			traces.Add(1)
		}
	}))
	t.Cleanup(collector.Close)
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "0s", "-otlp", collector.URL)
	p.request(t, http.MethodPost, "1", "Hello")
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.ended
	if traces.Load() == 0 {
		t.Error("the collector has received no spans")
	}
}

func TestFailure_ofErrors(t *testing.T) {
	t.Parallel()
	coded := func(code core.ErrorCode, cause error) error { return core.NewError("", code, "", cause) }
	for _, c := range []struct {
		err  error
		want event
	}{
		{coded(core.ErrTimeout, distlock.ErrNotAcquired), event{Code: core.ErrTimeout, Again: true}},
		{coded(core.ErrProviderDown, distlock.ErrUnavailable), event{Code: core.ErrProviderDown, Again: true}},
		{coded(belugamemory.ErrOutcomeUnknown, distlock.ErrOutcomeUnknown), event{Code: belugamemory.ErrOutcomeUnknown, Again: true}},
		{coded(belugamemory.ErrShuttingDown, distlock.ErrClosed), event{Code: belugamemory.ErrShuttingDown, Again: true}},
		{coded(belugamemory.ErrLockLost, distlock.ErrLost), event{Code: belugamemory.ErrLockLost, Again: true}},
		{coded(belugamemory.ErrInterrupted, distlock.ErrInterrupted), event{Code: belugamemory.ErrInterrupted}},
		{coded(core.ErrAuth, distlock.ErrRefused), event{Code: core.ErrAuth}},
		{coded(core.ErrInvalidInput, distlock.ErrInvalidKey), event{Code: core.ErrInvalidInput}},
		{errors.New("the model is broken"), event{Code: "failed"}},
	} {
		if c.want.Type = "error"; failure(c.err) != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, failure(c.err), c.want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
