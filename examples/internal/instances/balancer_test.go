package instances

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }

func TestBalancer_noInstance_asksToTryAgain(t *testing.T) {
	t.Parallel()
	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := nowhere.Addr().String()
	_ = nowhere.Close()
	unstarted, dead := &balancer{}, &balancer{}
	dead.addresses[0].Store(address)
	dead.addresses[1].Store(address)
	for _, b := range []*balancer{unstarted, dead} {
		w := httptest.NewRecorder()
		b.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("Hello")))
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
	b.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("Hello")))
	if w.Code != http.StatusServiceUnavailable || requests.Load() != 1 {
		t.Errorf("%d after %d requests: %s", w.Code, requests.Load(), w.Body)
	}
}

// An instance may answer before it has read the request: each side gets all that the other one sends.
func TestBalancer_earlyResponse_isWhole(t *testing.T) {
	t.Parallel()
	early := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response := http.NewResponseController(w)
		_ = response.EnableFullDuplex()
		_ = response.Flush()
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(early.Close)
	b := &balancer{}
	for i := range b.addresses {
		b.addresses[i].Store(early.Listener.Addr().String())
	}
	front := httptest.NewUnstartedServer(b.handler())
	front.Config.ReadTimeout = 5 * time.Second // of a request that never ends
	front.Start()
	t.Cleanup(front.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	body, send := io.Pipe()
	defer send.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, front.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.WriteString(send, "the request")
	_ = send.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "the request" {
		t.Errorf("%q, %v", text, err)
	}
}
