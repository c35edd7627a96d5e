package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// When the sub-places are used up, by new exchanges or by those behind them, a Replace changes nothing.
func TestReplace_O_subPlacesUsedUp_refused(t *testing.T) {
	d, err := NewDriver(nil)
	if err != nil {
		t.Fatal(err)
	}
	fence, n := time.Now().UnixMicro(), int64(0)
	write := func() storedriver.Write {
		n++
		return storedriver.Write{Access: storedriver.Access{Session: "s", Fence: fence}, N: n, Op: fmt.Sprintf("%032d", n)}
	}
	if _, err := d.Append(t.Context(), storedriver.Append{Write: write()}); err != nil {
		t.Fatal(err)
	}
	each := d.(*sessions).sessions["s"]
	replace := func(exchanges int, want storedriver.Outcome) {
		t.Helper()
		at := each.entries[0].Place
		r := storedriver.Replace{Write: write(), From: at, To: at}
		for range exchanges {
			r.New = append(r.New, storedriver.Entry{Place: lockedmemory.Place{Fence: at.Fence, N: at.N}})
		}
		before := len(each.entries)
		v, err := d.Replace(t.Context(), r)
		changed := len(each.entries) != before || each.entries[0].Place != at
		if err != nil || v.Outcome != want || changed != (want == storedriver.Done) {
			t.Errorf("%d exchanges: %v, %v; want outcome %d; %d entries", exchanges, v, err, want, len(each.entries))
		}
	}
	replace(3, storedriver.Done)
	each.revision = lockedmemory.MaxSub - 2
	replace(3, storedriver.Full)
	replace(1, storedriver.Full) // two more are moved
	replace(1, storedriver.Full)
	each.revision--
	replace(1, storedriver.Done)
	each.revision = lockedmemory.MaxSub
	if v, err := d.Clear(t.Context(), storedriver.Clear{Write: write()}); err != nil || v.Outcome != storedriver.Done {
		t.Fatalf("Clear: %+v, %v", v, err)
	}
	if _, err := d.Append(t.Context(), storedriver.Append{Write: write()}); err != nil {
		t.Fatal(err)
	}
	replace(3, storedriver.Done)
}
