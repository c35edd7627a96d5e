package leakcheck

import (
	"runtime"
	"testing"
	"time"
)

func TestMain(m *testing.M) { VerifyTestMain(m) }

// A goroutine that does not give its processor away, on a machine of one, stalls all others for 10 ms and more.
func TestStalls(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	stop := Stalls()
	runtime.Gosched()
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
	}
	if stalled := stop(); stalled < 50*time.Millisecond || stalled > 5*time.Second {
		t.Errorf("stalled for %s of 200ms", stalled)
	}
}
