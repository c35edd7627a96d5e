package main

import (
	"bufio"
	"context"
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
	log     strings.Builder // until ended
	ended   chan struct{}
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	self, err := os.Executable()
	must(t, err)
	p := &program{cmd: exec.Command(self, append([]string{"-listen", "127.0.0.1:0"}, args...)...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=yes", "GORACE=atexit_sleep_ms=0")
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
			if status, _ := p.get(t, "none"); status != http.StatusNotFound {
				return false
			}
		}
		return true
	})
	return p
}

func (p *program) get(t *testing.T, chat string) (int, string) {
	t.Helper()
	return p.request(t, http.MethodGet, chat, "")
}

func (p *program) post(t *testing.T, chat, question string) (int, string) {
	t.Helper()
	return p.request(t, http.MethodPost, chat, question)
}

func (p *program) request(t *testing.T, method, chat, question string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.address+"/chats/"+chat, strings.NewReader(question))
	must(t, err)
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
	p := serving(t, "-server", servers.StartRedis(t).URL())
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
	if len(want) != 6 || len(blocks) != 7 {
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
			status, text := p.post(t, "1", fmt.Sprintf("Where is order %d?", i))
			if status != http.StatusOK || !strings.HasSuffix(text, fmt.Sprintf("event: done\ndata: \"Order %d arrives on Friday.\"\n\n", i)) {
				t.Errorf("message %d: %d, %s", i, status, text)
			}
		})
	}
	all.Wait()
	_, text := p.get(t, "1")
	for i := range messages {
		if n := strings.Count(text, fmt.Sprintf("Where is order %d? → Order %d arrives on Friday.\n", i, i)); n != 1 {
			t.Errorf("message %d is stored %d times", i, n)
		}
	}
}

func TestService_terminated_finishesItsAnswers(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "500ms")
	response, err := http.Post("http://"+p.address+"/chats/1", "text/plain", strings.NewReader("Where is order 7?"))
	must(t, err) // the answer has begun: its first event is here
	defer response.Body.Close()
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	text, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(text), "event: done\n") {
		t.Errorf("%v, %s", err, text)
	}
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
}

func TestService_redisDown_saysThatNothingIsStored(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	p := serving(t, "-server", redis.URL()+"?max_retries=-1", "-model-delay", "0s")
	redis.Kill()
	if status, text := p.post(t, "1", "Hello"); status != http.StatusOK || !strings.Contains(text, "event: error\ndata: \"nothing is stored") {
		t.Errorf("%d, %s", status, text)
	}
	if status, text := p.get(t, "1"); status != http.StatusServiceUnavailable {
		t.Errorf("%d, %s", status, text)
	}
}

func TestService_wrongInput(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "0s")
	if status, text := p.post(t, "1", ""); status != http.StatusBadRequest {
		t.Errorf("no question: %d, %s", status, text)
	}
	if _, text := p.post(t, "%0A", "Hello"); !strings.Contains(text, "event: error\ndata: \"nothing is stored, and") {
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
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), gone) || requests.Load() != 1 {
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
	p.post(t, "1", "Hello")
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.ended
	if traces.Load() == 0 {
		t.Error("the collector has received no spans")
	}
}

func TestMeaning_ofErrors(t *testing.T) {
	t.Parallel()
	coded := func(code core.ErrorCode, cause error) error { return core.NewError("", code, "", cause) }
	for _, c := range []struct {
		err  error
		want string
	}{
		{coded(core.ErrTimeout, distlock.ErrNotAcquired), "nothing is stored: send"},
		{coded(core.ErrProviderDown, distlock.ErrUnavailable), "nothing is stored: send"},
		{coded(belugamemory.ErrShuttingDown, distlock.ErrClosed), "nothing is stored: send"},
		{coded(belugamemory.ErrLockLost, distlock.ErrLost), "the message may be stored"},
		{coded(belugamemory.ErrOutcomeUnknown, distlock.ErrOutcomeUnknown), "the message may be stored"},
		{coded(core.ErrAuth, distlock.ErrRefused), "nothing is stored, and"},
		{coded(core.ErrInvalidInput, distlock.ErrInvalidKey), "nothing is stored, and"},
		{errors.New("the model is broken"), "nothing is stored, and"},
	} {
		if got := meaning(c.err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// A tool of a cancelled run may still report its progress.
func TestProgress_afterTheRequest_writesNothing(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	out := &stream{w: w}
	ctx := context.WithValue(t.Context(), streamKey{}, out)
	progress(ctx, "one")
	out.close()
	before := w.Body.Len()
	progress(ctx, "two")
	if before == 0 || w.Body.Len() != before {
		t.Errorf("the client got %s", w.Body)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
