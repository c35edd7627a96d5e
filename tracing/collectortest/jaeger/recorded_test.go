package jaeger

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/incidents"
)

// The answers were recorded with the preview of Jaeger 2 in release 1.62, by make test-jaeger with
// RECORD=DIRECTORY.
func recorded(t *testing.T, name string) []trace {
	t.Helper()
	body, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	traces, err := read(body)
	if err != nil {
		t.Fatal(err)
	}
	return traces
}

func TestAnswers_recorded_linkLeadsToTheHolder(t *testing.T) {
	waiter, holder := recorded(t, "waiter.json"), recorded(t, "holder.json")
	got, err := waiter[0].contention()
	if err != nil {
		t.Fatal(err)
	}
	if got.instance != incidents.Waiting || got.outcome != "acquired" || got.waited < 2*time.Second {
		t.Errorf("the trace of the waiter shows %+v", got)
	}
	if instance, err := got.holder.resolve(holder); err != nil || instance != incidents.Steady {
		t.Errorf("the link leads to %q, %v", instance, err)
	}
	if _, err := got.holder.resolve(waiter); err == nil {
		t.Error("the link leads into the trace of the waiter itself")
	}
	if got, err := holder[0].contention(); err == nil {
		t.Errorf("the holder waited, too: %+v", got)
	}
}

func TestAnswers_ofAnErrorOrAnotherProgram(t *testing.T) {
	for body, want := range map[string]string{
		`{"data":null,"total":0,"errors":[{"code":404,"msg":"trace not found"}]}`: "error 404 of Jaeger: trace not found",
		`<!doctype html>`: "check the address",
	} {
		if traces, err := read([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", body, traces, err, want)
		}
	}
}

func TestSameID_leadingZeros(t *testing.T) {
	if !sameID("00ab", "ab") || sameID("00ab", "abc") {
		t.Error("IDs compare wrongly")
	}
}
