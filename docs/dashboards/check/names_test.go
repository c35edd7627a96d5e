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
	must(t, err)
	must(t, locker.Do(t.Context(), "a lock", func(context.Context) error { return nil }))
	must(t, locker.Close(t.Context()))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+target, nil)
	must(t, err)
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	if kind := response.Header.Get("Content-Type"); !strings.Contains(kind, "allow-utf-8") {
		t.Errorf("the answer is %s, want names of any letters", kind)
	}
	for _, name := range documented(t) {
		if !strings.Contains(string(text), "\n"+name+"{") {
			t.Errorf("there is no %s in %s", name, text)
		}
	}
}
