package adksession

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/mux"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/cmd/launcher"
	"google.golang.org/adk/v2/cmd/launcher/console"
	"google.golang.org/adk/v2/cmd/launcher/universal"
	"google.golang.org/adk/v2/cmd/launcher/web"
	"google.golang.org/adk/v2/cmd/launcher/web/api"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/server/adkrest"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// rest is adkrest under LockREST.
func (r *rig) rest(t *testing.T, m fakeModel, tools ...tool.Tool) http.Handler {
	t.Helper()
	server, err := adkrest.NewServer(adkrest.ServerConfig{SessionService: r.Service, AgentLoader: agent.NewSingleLoader(agentOf(t, m, tools...)),
		SSEWriteTimeout: time.Minute})
	must(t, err)
	return r.LockREST(server)
}

func (r *rig) body(text string) string {
	return fmt.Sprintf(`{"appName":%q,"userId":%q,"sessionId":%q,"newMessage":{"role":"user","parts":[{"text":%q}]}}`, r.id.app, r.id.user, r.id.name, text)
}

func (r *rig) post(t *testing.T, h http.Handler, path, body string) (code int, text string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close() // awaits the request
	resp, err := http.Post(server.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	read, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(read)
}

// Two instances answer questions of one session at once. Each model call sees all that was answered before.
func TestLockREST_twoInstances(t *testing.T) {
	r := newRig(t)
	r.id.app = "agent"
	r.create(t)
	counts := func(_ context.Context, req *model.LLMRequest) *genai.Content {
		return says(fmt.Sprint(len(req.Contents)))
	}
	instances := []http.Handler{r.rest(t, counts), func() http.Handler { o := newRig(t); return o.rest(t, counts) }()}
	const runs = 5
	var all sync.WaitGroup
	for _, h := range instances {
		all.Go(func() {
			for i := range runs {
				path := []string{"/run", "/run_sse"}[i%2]
				if code, text := r.post(t, h, path, r.body("q")); code != http.StatusOK || strings.Contains(text, "error") {
					t.Errorf("%s: %d %s", path, code, text)
				}
			}
		})
	}
	all.Wait()
	var want []string
	for i := range 2 * runs {
		want = append(want, "q", fmt.Sprint(2*i+1))
	}
	r.wantHistory(t, want...)
}

// LockREST takes the session that adkrest takes.
func TestLockREST_sameSession(t *testing.T) {
	r := newRig(t)
	whole := id{"agent", "u", "s"}
	var in id
	h := r.LockREST(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		in = id{}
		for _, name := range []string{"s", "t"} {
			of := id{"agent", "u", name}
			if _, ok := r.locker.FromContext(req.Context(), of.key()); ok {
				in = of
			}
		}
		body, err := io.ReadAll(req.Body)
		must(t, err)
		_, _ = w.Write(body)
	}))
	const plain = `{"appName":"agent","userId":"u","sessionId":"s"}`
	for name, c := range map[string]struct {
		path, body string
		want       id
	}{
		"plain":          {"/run", plain, whole},
		"below a prefix": {"/api/run_sse", plain, whole},
		"another case":   {"/run", `{"APPNAME":"agent","userid":"u","SessionID":"s"}`, whole},
		"a doubled name": {"/run", `{"appName":"agent","userId":"u","sessionId":"t","sessionId":"s"}`, whole},
		"a second value": {"/run", plain + `{"sessionId":"t"}`, whole},
		"a long message": {"/run", `{"newMessage":"` + strings.Repeat("x", 1<<20) + `","appName":"agent","userId":"u","sessionId":"s"}`, whole},
		"no session":     {"/apps/agent/users/u/sessions/run", `{"state":{}}`, id{}},
		"no JSON":        {"/run", `{"appName":"agent","userId":"u","sessionId":"s"`, id{}},
		"an empty ID":    {"/run", `{"appName":"agent","userId":"u"}`, id{}},
		"another path":   {"/running", plain, id{}},
		"no body":        {"/run", "", id{}},
	} {
		code, text := r.post(t, h, c.path, c.body)
		if in != c.want || text != c.body || code != http.StatusOK {
			t.Errorf("%s: %d, the lock is that of %v, want %v, %d of %d bytes arrive", name, code, in, c.want, len(text), len(c.body))
		}
	}
}

// A handler with another SessionService would store nothing here. Its first answered run shows that.
func TestLockREST_otherService(t *testing.T) {
	for i, path := range []string{"/run", "/run_sse", "/run", "/run_sse"} {
		var log strings.Builder
		r := newRig(t, distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		service, want := []session.Service{r.Service, session.InMemoryService()}[i/2], i/2
		_, err := service.Create(t.Context(), &session.CreateRequest{AppName: "agent", UserID: path[1:], SessionID: r.id.name})
		must(t, err)
		rest, err := adkrest.NewServer(adkrest.ServerConfig{SessionService: service, SSEWriteTimeout: time.Minute,
			AgentLoader: agent.NewSingleLoader(agentOf(t, func(context.Context, *model.LLMRequest) *genai.Content { return says("a") }))})
		must(t, err)
		h := r.LockREST(rest)
		r.id.app, r.id.user = "agent", path[1:]
		for _, body := range []string{`{"unknown":1,` + r.body("q")[1:], r.body("q"), r.body("q")} {
			_, _ = r.post(t, h, path, body)
		}
		must(t, r.locker.Close(t.Context())) // writes the log
		if n := strings.Count(log.String(), "make this Service the SessionService"); n != want {
			t.Errorf("%s: %d warnings, want %d: %s", path, n, want, &log)
		}
	}
}

// The handler decides how much of a body it reads.
func TestLockREST_openBody(t *testing.T) {
	r := newRig(t)
	body, client := io.Pipe()
	ends := time.AfterFunc(5*time.Second, func() { _ = client.Close() })
	const request = `{"appName": "agent", "userId": "u", "sessionId": "s"}`
	go func() { _, _ = io.WriteString(client, request) }()
	r.LockREST(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		read := make([]byte, len(request))
		if _, err := io.ReadFull(req.Body, read); err != nil || string(read) != request {
			t.Errorf("the handler got %q, %v", read, err)
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/run", body))
	if !ends.Stop() {
		t.Error("the handler has waited for the end of the body")
	}
}

// A busy session is a 503, sooner than the server ends the request.
func TestLockREST_busy(t *testing.T) {
	for _, wait := range []time.Duration{0, -1} {
		r := newRig(t, Options{Wait: wait})
		server := httptest.NewUnstartedServer(r.LockREST(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") })))
		server.Config.WriteTimeout = 600 * time.Millisecond
		server.Start()
		r.under(t, func(context.Context) {
			client := http.Client{Timeout: 10 * time.Second}
			resp, err := client.Post(server.URL+"/run", "application/json", strings.NewReader(r.body("q")))
			must(t, err)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
		})
		server.Close()
	}
}

// locked is a sublauncher of ADK, whose runs hold the lock of their session.
type locked struct {
	web.Sublauncher
	lock mux.MiddlewareFunc
}

func (l locked) SetupSubrouters(router *mux.Router, config *launcher.Config) error {
	router.Use(l.lock)
	return l.Sublauncher.SetupSubrouters(router, config)
}

// noPort ends a launcher before it listens, and has its router.
type noPort struct {
	locked
	router *mux.Router
}

func (n *noPort) SetupSubrouters(router *mux.Router, config *launcher.Config) error {
	n.router = router
	return errors.Join(n.locked.SetupSubrouters(router, config), io.EOF)
}

// A request to ADK's launcher holds the lock of its session, also below a prefix of its own.
func TestLauncher_use(t *testing.T) {
	for _, prefix := range []string{"/api", ""} {
		r := newRig(t, Options{Busy: lockedmemory.Refuse})
		r.id.app, r.id.name = "agent", "session"+prefix
		r.create(t)
		at := &noPort{locked: locked{api.NewLauncher(), r.LockREST}}
		var inside int
		config := launcher.Config{SessionService: r.Service, AgentLoader: agent.NewSingleLoader(agentOf(t,
			func(context.Context, *model.LLMRequest) *genai.Content {
				if inside++; inside == 1 {
					inside, _ = r.post(t, at.router, prefix+"/run", r.body("inside"))
				}
				return says("a")
			}))}
		all := universal.NewLauncher(console.NewLauncher(), web.NewLauncher(at))
		if err := all.Execute(t.Context(), &config, []string{"web", "api", "-path_prefix", prefix}); !strings.Contains(fmt.Sprint(err), "EOF") {
			t.Fatal(err)
		}
		code, text := r.post(t, at.router, prefix+"/run", r.body("q"))
		if code != http.StatusOK || inside != http.StatusServiceUnavailable {
			t.Errorf("prefix %q: the run has status %d, that inside of it %d: %s", prefix, code, inside, text)
		}
		r.wantHistory(t, "q", "a")
	}
}
