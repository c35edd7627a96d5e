package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/belugalock/belugalock/examples/internal/instances"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

func TestReadme_commandsPrintTheirOutput(t *testing.T) {
	t.Parallel()
	_, address := recipetest.StartInstances(t, "-server", servers.StartRedis(t).URL(), "-model-delay", "200ms")
	recipetest.Readme(t, address, 7)
}

// The tour is each promise of this program, and fails if one is broken.
func TestTour_isAsItShouldBe(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]string{
		"miniredis": "",
		"redis":     servers.StartRedis(t).URL(),
		"postgres":  servers.SharedPostgres(t).NewDatabase(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, err := recipetest.Tour(t, "-server", server, "-model-delay", "200ms")
			tooLong := func(line string) bool { return len([]rune(line)) > 80 } // for a terminal
			if err != nil || len(lines) != 6 || slices.ContainsFunc(lines, tooLong) {
				t.Errorf("%v, and the output\n%s", err, strings.Join(lines, "\n"))
			}
		})
	}
}

// A service that answers without its events: each line is wrong.
func TestTour_brokenService_isWrong(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Instance", fmt.Sprint(requests.Add(1)))
		if r.URL.Path == "/run_sse" {
			fmt.Fprint(w, strings.Repeat("data: {\"partial\":true}\n\n", 3))
		}
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(broken.Close)
	var out strings.Builder
	err := instances.Play(t.Context(), &out, tour(broken.URL))
	if n := strings.Count(out.String(), "WRONG: "); err == nil || n != 6 {
		t.Errorf("%v, %d lines are wrong:\n%s", err, n, &out)
	}
}

func TestStores_histories(t *testing.T) {
	t.Parallel()
	const question, second, tool = "1:Where?", "2:And?", "3:"
	for name, c := range map[string]struct {
		events []string
		after  []int
		right  bool
	}{
		"right": {
			[]string{question, tool, "4:I saw 2 events", second, "5:I saw 4 events"}, []int{2, 4}, true,
		},
		"a question more":    {[]string{question, second, tool, "4:I saw 3 events"}, []int{2}, false},
		"missed an event":    {[]string{question, second, tool, "4:I saw 2 events"}, []int{3}, false},
		"lost an event":      {[]string{question, "4:I saw 2 events"}, []int{1}, false},
		"doubled event":      {[]string{question, question, "4:I saw 2 events"}, []int{2}, false},
		"doubled answer":     {[]string{question, "4:I saw 1 events", "5:I saw 2 events"}, []int{1}, false},
		"no second answer":   {[]string{question, "4:I saw 1 events", second}, []int{1, 3}, false},
		"doubled at the end": {[]string{question, "4:I saw 1 events", question}, []int{1}, false},
		"events at the end":  {[]string{question, "4:I saw 1 events", second}, []int{1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events []string
			for _, e := range c.events {
				id, text, _ := strings.Cut(e, ":")
				events = append(events, fmt.Sprintf(`{"id": %q, "content": %q}`, id, text))
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, `{"events": [%s]}`, strings.Join(events, ","))
			}))
			t.Cleanup(server.Close)
			if err := (user{server.URL, "ada"}).stores(t.Context(), "1", c.after...); (err == nil) != c.right {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestService_terminated_finishesItsAnswers(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]string{
		"redis":    servers.StartRedis(t).URL(),
		"postgres": servers.SharedPostgres(t).NewDatabase(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, address := recipetest.StartInstances(t, "-server", server, "-model-delay", "100ms")
			u := user{"http://" + address, "ada"}
			err := u.create(t.Context(), "1")
			r, err2 := u.send(t.Context(), "/run_sse", "1", "Where is order 7?", func(string) error {
				return p.Signal(syscall.SIGTERM)
			})
			if err != nil || err2 != nil || r.Pieces != 9 {
				t.Errorf("%v, %v after %d pieces", err, err2, r.Pieces)
			}
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
