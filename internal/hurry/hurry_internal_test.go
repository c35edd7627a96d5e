package hurry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestContext_endsAtItsDeadlineAndNotWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Alarms
		type value struct{}
		of, cancel := context.WithCancel(context.WithValue(t.Context(), value{}, "kept"))
		start := time.Now()
		ctx := h.Begin(of, start.Add(10*time.Millisecond))
		cancel()
		if at, ok := ctx.Deadline(); !ok || !at.Equal(start.Add(10*time.Millisecond)) || ctx.Value(value{}) != "kept" {
			t.Errorf("deadline %s, %t; value %v", at.Sub(start), ok, ctx.Value(value{}))
		}
		time.Sleep(10*time.Millisecond - 1)
		synctest.Wait()
		if err := ctx.Err(); err != nil {
			t.Errorf("before its deadline: %v", err)
		}
		<-ctx.Done()
		if took := time.Since(start); took != 10*time.Millisecond || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("after %s: %v", took, ctx.Err())
		}
		h.End(ctx)
		if next := h.Begin(t.Context(), time.Now().Add(time.Second)); next.Err() != nil {
			t.Errorf("the next has ended already: %v", next.Err())
		} else {
			h.End(next)
		}
	})
}

func TestContext_usesAlarmsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Alarms
		const rounds = 100
		alarms := make(map[*alarm]bool)
		for range rounds {
			ctx := h.Begin(t.Context(), time.Now().Add(time.Minute))
			alarms[ctx.alarm] = true
			h.End(ctx)
		}
		if len(alarms) > rounds*3/4 { // with the race detector, a pool forgets a quarter
			t.Errorf("%d alarms in %d calls", len(alarms), rounds)
		}
	})
}

// Of two calls that share an alarm, the second is not ended by the first one's deadline, however late the timer is at it.
func TestContext_anEndedCallDoesNotRingForTheNext(t *testing.T) {
	for name, late := range map[string]bool{"a timer in time": false, "a timer that fires as the call ends": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h Alarms
				shared := 0
				for range 50 {
					first := h.Begin(t.Context(), time.Now().Add(5*time.Millisecond))
					h.End(first)
					second := h.Begin(t.Context(), time.Now().Add(15*time.Millisecond))
					if second.alarm == first.alarm {
						shared++
						if late {
							first.alarm.ring()
						}
						time.Sleep(15*time.Millisecond - 1)
						synctest.Wait()
						if err := second.Err(); err != nil {
							t.Fatalf("the second call was ended before its deadline: %v", err)
						}
						time.Sleep(time.Nanosecond)
						synctest.Wait()
						if second.Err() == nil {
							t.Fatal("the second call was not ended at its deadline")
						}
					}
					h.End(second)
				}
				if shared == 0 {
					t.Fatal("no two calls have shared an alarm, this tests nothing")
				}
			})
		})
	}
}
