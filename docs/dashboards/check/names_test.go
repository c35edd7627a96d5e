package check

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// Prometheus 3 accepts names with dots. The queries need the names with underscores.
func TestExporter_namesHaveUnderscores(t *testing.T) {
	telemetry, target := serve(t)
	locker, err := memlock.New(&distlock.Options{Observer: telemetry.Observer})
	if err != nil {
		t.Fatal(err)
	}
	if err := locker.Do(t.Context(), "a lock", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := locker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if kind := response.Header.Get("Content-Type"); !strings.Contains(kind, "allow-utf-8") {
		t.Errorf("the answer is %s, want names of any letters", kind)
	}
	for _, name := range documented(t) {
		if !strings.Contains(string(text), "\n"+name+"{") {
			t.Errorf("there is no %s", name)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}
