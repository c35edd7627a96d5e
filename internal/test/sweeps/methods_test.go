package sweeps

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// withoutService are the methods that reach no service.
var withoutService = []string{
	"Locker.NewLock",
	"Lease.Context", "Lease.Deadline", "Lease.Err", "Lease.Fence", "Lease.Key",
	"Store.AcceptsLocker", "Store.Check", "Store.HashOf",
}

func TestSweep_coversEveryMethod(t *testing.T) {
	var swept []string
	for _, r := range slices.Concat(lockRows, storeRows) {
		swept = append(swept, strings.Fields(r.covers)...)
	}
	var methods []string
	for name, of := range map[string]reflect.Type{
		"Locker":       reflect.TypeFor[*distlock.Locker](),
		"Lease":        reflect.TypeFor[*distlock.Lease](),
		"LockedMemory": reflect.TypeFor[*lockedmemory.LockedMemory[string, string]](),
		"Store":        reflect.TypeFor[*sessionstore.Store[string, string]](),
	} {
		for i := range of.NumMethod() {
			methods = append(methods, name+"."+of.Method(i).Name)
		}
	}
	for _, method := range methods {
		if !slices.Contains(swept, method) && !slices.Contains(withoutService, method) {
			t.Errorf("%s is not in the table: add a row, or say that it makes no call", method)
		}
	}
	for _, named := range slices.Concat(swept, withoutService) {
		if !slices.Contains(methods, named) {
			t.Errorf("%s is in the table, but is no method", named)
		}
	}
}
