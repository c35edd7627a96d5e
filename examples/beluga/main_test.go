package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/internal/instances"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

// program is the balancer with its instances.
type program struct {
	*recipetest.Process
	address string
}

func serving(t *testing.T, args ...string) program {
	t.Helper()
	p, address := recipetest.StartInstances(t, args...)
	return program{p, address}
}

// client is the client of a chat.
func (p program) client(chat string) client { return client{"http://" + p.address, "/chats/" + chat} }

// request sends a question under itself as its ID.
func (p program) request(t *testing.T, method, chat, question string) (int, string) {
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

func TestReadme_commandsPrintTheirOutput(t *testing.T) {
	t.Parallel()
	recipetest.Readme(t, serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "200ms").address, 8)
}

func TestService_terminated_finishesItsAnswers(t *testing.T) {
	t.Parallel()
	p := serving(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "100ms")
	r, err := p.client("1").send(t.Context(), http.MethodPost, "/chats/1", "1", "Where is order 7?", func(string) error {
		return p.Signal(syscall.SIGTERM)
	})
	if err != nil || r.Type != "done" {
		t.Errorf("%v, %s", err, r.Body)
	}
	must(t, p.Wait())
}

// The tour is each promise of this program, and fails if one is broken.
func TestTour_isAsItShouldBe(t *testing.T) {
	t.Parallel()
	for _, server := range []string{servers.StartRedis(t).URL(), ""} { // "": the Redis in the program
		t.Run("server="+server, func(t *testing.T) {
			t.Parallel()
			lines, err := recipetest.Tour(t, "-server", server, "-model-delay", "200ms")
			tooLong := func(line string) bool { return len([]rune(line)) > 80 } // for a terminal
			if err != nil || len(lines) != 5 || slices.ContainsFunc(lines, tooLong) {
				t.Errorf("%v, and the output\n%s", err, strings.Join(lines, "\n"))
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
	err := instances.Play(t.Context(), &out, tour(broken.URL))
	if n := strings.Count(out.String(), "WRONG: "); err == nil || n < 4 { // it may be a stream
		t.Errorf("%v, %d lines are wrong:\n%s", err, n, &out)
	}
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
		t.Errorf("%v, in mid-stream the chat was %q, and then came %s", err, during, r.Body)
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
		t.Errorf("%v, %s", err, r.Body)
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
	if err != nil || stop.Body != "{\"stored\":false}\n" || r.Code != belugamemory.ErrInterrupted || r.Again {
		t.Errorf("%v, %s%s", err, stop.Body, r.Body)
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
	p := recipetest.Start(t, "-listen", "127.0.0.1:0", "-server", "ftp://localhost")
	if err, out := p.Wait(), p.Output(); err == nil || !strings.Contains(out, "no instance listens") ||
		!strings.Contains(out, "the scheme \"ftp\" is not known") {
		t.Errorf("%v", err)
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
	must(t, p.Signal(syscall.SIGTERM))
	must(t, p.Wait())
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
			if err != nil || !r.Stopped || strings.HasSuffix(r.Text, ".") || stop.Instance == r.Instance {
				t.Errorf("%v, instance %s was stopped by %s: %s", err, r.Instance, stop.Instance, r.Body)
			}
			if (stop.Body == "{\"stored\":true}\n") != (stopped != "") {
				t.Errorf("the stop has answered %q", stop.Body)
			}
			must(t, c.shows(t.Context(), "Where is order 7?", r.Text+" (stopped)"))
			again, err := c.answer(t.Context(), "1", "Where is order 7?", nil)
			if err != nil || !again.Stopped || again.Text != r.Text || again.Pieces > 1 {
				t.Errorf("%v, the repeated message got %s", err, again.Body)
			}
		})
	}
}
