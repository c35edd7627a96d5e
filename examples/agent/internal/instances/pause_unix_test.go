//go:build unix

package instances

import (
	"context"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestRun_pausesAnInstance(t *testing.T) {
	const pause = 300 * time.Millisecond
	var paused time.Time
	resumed := 0
	err := Run(context.Background(), 1, order{Do: "count"}, Orders[int, int]{
		Begun: func(i *Instance[int]) { i.Give(1) },
		Line: func(i *Instance[int], n int) error {
			if n == 12 {
				i.Dismiss()
				return nil
			}
			paused = time.Now()
			err := i.Pause(pause)
			i.Give(2)
			return err
		},
		Resumed: func(*Instance[int]) { resumed++ },
		Pauses:  true,
	})
	if took := time.Since(paused); err != nil || took < pause || resumed != 1 {
		t.Errorf("error %v, the next line came after %s, and %d pauses have ended", err, took, resumed)
	}
}

func TestRun_endsWhileAnInstanceIsPaused(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := leakcheck.NewWatch()
	defer watch.Stop()
	var end time.Time
	err := Run(ctx, 1, order{Do: "wait"}, Orders[int, int]{
		Begun: func(*Instance[int]) {},
		Line: func(i *Instance[int], n int) error {
			end = time.Now()
			defer cancel()
			return i.Pause(time.Minute)
		},
		Pauses: true,
	})
	ended := time.Now()
	if took := ended.Sub(end) - watch.Stalled(end, ended); err == nil || err.Error() != "interrupted" || took > grace {
		t.Errorf("error %v, the end took %s", err, took)
	}
}
