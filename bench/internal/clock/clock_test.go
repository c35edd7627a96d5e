package clock

import (
	"testing"
	"time"
)

func TestNow_isTheSharedClock(t *testing.T) {
	time.Sleep(5 * time.Millisecond)
	before := read()
	now := Now()
	after := read()
	const off = Time(20 * time.Microsecond) // between the readings of zero
	if now < before-off && Now() < read()-off || now > after+off && Now() > read()+off {
		t.Errorf("Now is %d, the system's clock went from %d to %d", now, before, after)
	}
}

func TestTime_arithmetic(t *testing.T) {
	at := Now()
	if later := at.Add(time.Second); later.Sub(at) != time.Second || later.Until() > time.Second {
		t.Errorf("a second later is %s later and in %s", later.Sub(at), later.Until())
	}
}
