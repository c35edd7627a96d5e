package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

type order struct {
	Do  string
	Who int // 0: all
}

func TestMain(m *testing.M) {
	Serve(func(ctx context.Context, number int, o order, tasks <-chan int) error {
		if o.Who != 0 && o.Who != number {
			<-ctx.Done()
			return ctx.Err()
		}
		switch o.Do {
		case "count":
			for task := range tasks {
				fmt.Println(10*number + task)
			}
			return ctx.Err()
		case "fail":
			return errors.New("as ordered")
		case "fail in the end":
			for range tasks {
			}
			return errors.New("as ordered")
		case "crash":
			os.Exit(7)
		case "talk":
			fmt.Println("this is no JSON")
		case "hang":
			fmt.Println(number)
			select {}
		case "wait":
			fmt.Println(number)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	// The race detector lets every process sleep for a second before it ends, unless told not to.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// orders give no tasks.
func orders(line func(*Instance[int], int) error) Orders[int, int] {
	return Orders[int, int]{Begun: func(i *Instance[int]) { i.Dismiss() }, Line: line}
}

func TestRun_givesTasksAndCollectsWhatInstancesSay(t *testing.T) {
	var said []int
	err := Run(context.Background(), 3, order{Do: "count"}, Orders[int, int]{
		Begun: func(i *Instance[int]) { i.Give(1) },
		Line: func(i *Instance[int], n int) error {
			if said = append(said, n); n/10 != i.Number {
				t.Errorf("instance-%d has said %d", i.Number, n)
			}
			if n%10 == 2 {
				i.Dismiss()
			} else {
				i.Give(2)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(said)
	if want := []int{11, 12, 21, 22, 31, 32}; !slices.Equal(said, want) {
		t.Errorf("they said %v, want %v", said, want)
	}
}

func TestRun_oneFailureEndsAll(t *testing.T) {
	for do, want := range map[string]string{
		"fail":            "instance-2: exit status 1",
		"fail in the end": "instance-2: exit status 1",
		"crash":           "instance-2: exit status 7",
		"talk":            "instance-2: its lines make no sense",
	} {
		t.Run(do, func(t *testing.T) {
			err := Run(context.Background(), 3, order{do, 2}, orders(nil))
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("the error is %v, want %q", err, want)
			}
		})
	}
}

func TestRun_endsIfALineIsRefused(t *testing.T) {
	refused := errors.New("that is enough")
	err := Run(context.Background(), 3, order{Do: "wait"}, orders(func(*Instance[int], int) error { return refused }))
	if err != refused {
		t.Errorf("the error is %v", err)
	}
}

func TestRun_anotherTakesThePlaceOfOneThatWasKilled(t *testing.T) {
	begun, killed := 0, 0
	err := Run(context.Background(), 1, order{Do: "count"}, Orders[int, int]{
		Begun: func(i *Instance[int]) {
			begun++
			i.Give(begun)
		},
		Line: func(i *Instance[int], n int) error {
			if n == 13 {
				i.Dismiss()
				return nil
			}
			return i.Kill()
		},
		Killed: func(*Instance[int]) { killed++ },
	})
	if err != nil || begun != 3 || killed != 2 {
		t.Errorf("error %v, %d have begun, %d were killed", err, begun, killed)
	}
}

func TestRun_endsWithItsContext(t *testing.T) {
	for do, limit := range map[string]time.Duration{"wait": grace, "hang": 2 * grace} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			watch := leakcheck.NewWatch()
			defer watch.Stop()
			var end time.Time
			err := Run(ctx, 2, order{Do: do}, orders(func(*Instance[int], int) error {
				end = time.Now()
				cancel()
				return nil
			}))
			if err == nil || err.Error() != "interrupted" {
				t.Errorf("the error is %v", err)
			}
			ended := time.Now()
			if took := ended.Sub(end) - watch.Stalled(end, ended); took > limit {
				t.Errorf("the end took %s", took)
			}
		})
	}
}
