package faultnet

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

func TestFault_tellsWhatDidNotHappen(t *testing.T) {
	f := newFault(t, "replies were dropped", nil)
	f.timeout = 10 * time.Millisecond
	f.add()
	f.Wait(1)

	tb := &failing{TB: t}
	f.tb = tb
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Wait(2)
	}()
	<-done
	if want := "1 of 2 replies were dropped after 10ms"; tb.message != want {
		t.Errorf("failed with %q, want %q", tb.message, want)
	}
}

// failing stands for a test that fails.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
