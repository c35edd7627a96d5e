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
)

type order struct {
	Do  string
	Who int // 0: all
}

func TestMain(m *testing.M) {
	Serve(func(ctx context.Context, number int, o order) error {
		if o.Who != 0 && o.Who != number {
			<-ctx.Done()
			return ctx.Err()
		}
		switch o.Do {
		case "count":
			fmt.Println(number, number+10)
		case "fail":
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

func TestRun_collectsWhatInstancesSay(t *testing.T) {
	var said []int
	if err := Run(context.Background(), 3, order{Do: "count"}, func(n int) { said = append(said, n) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(said)
	if want := []int{1, 2, 3, 11, 12, 13}; !slices.Equal(said, want) {
		t.Errorf("they said %v, want %v", said, want)
	}
}

func TestRun_oneFailureEndsAll(t *testing.T) {
	for do, want := range map[string]string{
		"fail":  "instance-2: exit status 1",
		"crash": "instance-2: exit status 7",
		"talk":  "instance-2: its lines make no sense",
	} {
		t.Run(do, func(t *testing.T) {
			err := Run(context.Background(), 3, order{do, 2}, func(int) {})
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("the error is %v, want %q", err, want)
			}
		})
	}
}

func TestRun_endsWithItsContext(t *testing.T) {
	for do, limit := range map[string]time.Duration{"wait": grace, "hang": 2 * grace} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var end time.Time
			err := Run(ctx, 2, order{Do: do}, func(int) {
				end = time.Now()
				cancel()
			})
			if err == nil || err.Error() != "interrupted" {
				t.Errorf("the error is %v", err)
			}
			if took := time.Since(end); took > limit {
				t.Errorf("the end took %s", took)
			}
		})
	}
}
