package balancer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/examples/agent/internal/hitch"
	"github.com/belugalock/belugalock/examples/agent/internal/metrics"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
)

// order says how instances work.
type order struct {
	Fail    int    // turns of this message fail at its first delivery, or each turn if it is below 0
	Metrics string // what they write beside each turn
}

func TestMain(m *testing.M) {
	Serve(func(ctx context.Context, number int, o order, deliveries <-chan Delivery) error {
		said := json.NewEncoder(os.Stdout)
		for d := range deliveries {
			if d.Hitch != "" {
				_ = said.Encode(spans.Span{Name: hitch.Span})
				time.Sleep(500 * time.Millisecond)
			}
			turn := spans.Span{Name: spans.Turn, Session: d.Session, Message: d.Message, Instance: fmt.Sprint("instance-", number)}
			if o.Metrics != "" {
				_ = said.Encode(metrics.Line{Metrics: []byte(o.Metrics)})
			}
			if o.Fail < 0 || o.Fail == d.Message && d.Tries == 0 {
				turn.Error = "as ordered"
			}
			_ = said.Encode(turn)
		}
		return nil
	})
	// The race detector lets every process sleep for a second before it ends, unless told not to.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// turns are the instances that have ended turns, by session and message, in order.
type turns map[[2]int][]string

func (t turns) add(s spans.Span, _ Tally) {
	if s.Name == spans.Turn {
		message := [2]int{s.Session, s.Message}
		t[message] = append(t[message], strings.TrimSpace(s.Instance+" "+s.Error))
	}
}

// unmeasured refuses metrics.
func unmeasured(instance int, page []byte) error {
	return fmt.Errorf("instance-%d has the metrics %q", instance, page)
}

func TestRun_passesMetricsOn(t *testing.T) {
	var got string
	_, err := Run(t.Context(), order{Fail: 99, Metrics: "a page"}, Plan{Instances: 1, Sessions: 1, Turns: 1}, func(spans.Span, Tally) {},
		func(instance int, page []byte) error {
			got = fmt.Sprint(instance, string(page))
			return nil
		})
	if err != nil || got != "1a page" {
		t.Errorf("error %v, and the metrics are %q", err, got)
	}
}

func TestRun_deliversEveryMessageAndEveryFifthTwice(t *testing.T) {
	got := turns{}
	plan := Plan{Instances: 3, Sessions: 2, Turns: 7}
	if tally, err := Run(t.Context(), order{Fail: 99}, plan, got.add, unmeasured); err != nil || tally != (Tally{}) {
		t.Fatalf("%+v, error %v", tally, err)
	}
	deliveries := 0
	for message, by := range got {
		want := 1
		if twice(message[1]) {
			want = 2
		}
		deliveries += len(by)
		slices.Sort(by)
		if len(slices.Compact(by)) != want {
			t.Errorf("message %d went to %s", message, by)
		}
	}
	if len(got) != 14 || deliveries != plan.Deliveries() {
		t.Errorf("%d messages were delivered, %d deliveries, want %d", len(got), deliveries, plan.Deliveries())
	}
}

func TestRun_deliversToAnotherOneWhatHasFailed(t *testing.T) {
	got := turns{}
	tally, err := Run(t.Context(), order{Fail: 2}, Plan{Instances: 2, Sessions: 1, Turns: 5}, got.add, unmeasured)
	if err != nil || tally != (Tally{Again: 1}) {
		t.Errorf("%+v, error %v", tally, err)
	}
	if by := got[[2]int{0, 2}]; !slices.Equal(by, []string{"instance-1 as ordered", "instance-2"}) {
		t.Errorf("the turns were %q", by)
	}
}

func TestRun_endsIfAMessageFailsEachTime(t *testing.T) {
	_, err := Run(t.Context(), order{Fail: -1}, Plan{Instances: 2, Sessions: 1, Turns: 1}, func(spans.Span, Tally) {}, unmeasured)
	if want := "a message was delivered 26 times, and its last turn ended with: as ordered"; err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestRun_strikes(t *testing.T) {
	if !CanPause {
		return // there is no chaos here
	}
	chaos := Chaos{Strikes: 5, Pause: 10 * time.Millisecond}
	for name, test := range map[string]struct {
		plan Plan
		want Tally
	}{
		"as often as it says":                  {Plan{Instances: 3, Sessions: 2, Turns: 30, Chaos: chaos}, Tally{Kills: 3, Pauses: 2, Again: 3}},
		"less often if there are few messages": {Plan{Instances: 2, Sessions: 1, Turns: 2, Chaos: chaos}, Tally{Kills: 1, Pauses: 1, Again: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := turns{}
			tally, err := Run(t.Context(), order{Fail: 99}, test.plan, got.add, unmeasured)
			if err != nil || tally != test.want {
				t.Errorf("%+v, error %v, want %+v", tally, err, test.want)
			}
			if len(got) != test.plan.Sessions*test.plan.Turns {
				t.Errorf("ended have turns of %v", slices.Collect(maps.Keys(got)))
			}
		})
	}
}
