package balancer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/internal/test/child"
)

// order says how instances work.
type order struct {
	Instance int
	Fail     int // turns of this message fail at its first delivery, or each turn if it is below 0
}

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{Role: child.Role(func(_ context.Context, program *child.Line, o order) error {
		for {
			var d Delivery
			if program.Receive(&d) != nil {
				return nil
			}
			if d.Strike.Place != "" {
				_ = program.Send(Line{})
				time.Sleep(500 * time.Millisecond)
			}
			turn := Turn{Session: d.Session, Message: d.Message, Instance: fmt.Sprint("instance-", o.Instance)}
			if o.Fail < 0 || o.Fail == d.Message && d.Tries == 0 {
				turn.Error = "as ordered"
			}
			_ = program.Send(Line{Turn: &turn})
		}
	})})
	goleak.VerifyTestMain(m)
}

func run(t *testing.T, plan Plan, fail int) (Outcome, error) {
	t.Helper()
	return Run(t.Context(), plan, func(instance int) any { return order{instance, fail} }, func() {})
}

// turns returns the instances that have ended turns, by session and message, in order.
func turns(o Outcome) map[[2]int][]string {
	all := map[[2]int][]string{}
	for _, turn := range o.Ended {
		message := [2]int{turn.Session, turn.Message}
		all[message] = append(all[message], strings.TrimSpace(turn.Instance+" "+turn.Error))
	}
	return all
}

func TestRun_deliversEveryMessageAndEveryFifthTwice(t *testing.T) {
	plan := Plan{Instances: 3, Sessions: 2, Turns: 7}
	o, err := run(t, plan, 99)
	if err != nil || o.Again != 0 || len(o.Ended) != plan.Deliveries() {
		t.Fatalf("%+v, error %v", o, err)
	}
	got := turns(o)
	for message, by := range got {
		want := 1
		if twice(message[1]) {
			want = 2
		}
		slices.Sort(by)
		if len(slices.Compact(by)) != want {
			t.Errorf("message %d went to %s", message, by)
		}
	}
	if len(got) != 14 {
		t.Errorf("%d messages were delivered", len(got))
	}
}

func TestRun_deliversToAnotherOneWhatHasFailed(t *testing.T) {
	o, err := run(t, Plan{Instances: 2, Sessions: 1, Turns: 5}, 2)
	if by := turns(o)[[2]int{0, 2}]; err != nil || o.Again != 1 || !slices.Equal(by, []string{"instance-1 as ordered", "instance-2"}) {
		t.Errorf("the turns were %q, error %v", by, err)
	}
}

func TestRun_endsIfAMessageFailsEachTime(t *testing.T) {
	_, err := run(t, Plan{Instances: 2, Sessions: 1, Turns: 1}, -1)
	if want := "a message was delivered 26 times, and its last turn ended with: as ordered"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestRun_strikes(t *testing.T) {
	for name, test := range map[string]struct {
		plan                 Plan
		kills, pauses, again int
	}{
		"as often as it says":                  {Plan{Instances: 3, Sessions: 2, Turns: 30, Strikes: 5}, 3, 2, 3},
		"less often if there are few messages": {Plan{Instances: 2, Sessions: 1, Turns: 2, Strikes: 5}, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			test.plan.Pause = 10 * time.Millisecond
			o, err := run(t, test.plan, 99)
			if err != nil || o.Kills != test.kills || o.Pauses != test.pauses || o.Again != test.again {
				t.Errorf("%d kills, %d pauses, %d again, error %v, want %+v", o.Kills, o.Pauses, o.Again, err, test)
			}
			if got := turns(o); len(got) != test.plan.Sessions*test.plan.Turns {
				t.Errorf("ended have turns of %d messages", len(got))
			}
		})
	}
}
