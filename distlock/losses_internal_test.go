package distlock

import (
	"strconv"
	"testing"
)

// A connection that ends may report as many losses as the process has leases.
func TestLosses_manyGrants_costNoCopy(t *testing.T) {
	l := open(t, granter{}, Options{RenewEvery: -1})
	for i := range 100 {
		if _, err := l.Acquire(t.Context(), strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { l.lossReported("another") }); n > 0 {
		t.Errorf("a report allocates %.0f times", n)
	}
}
