package storetest_test

import (
	"testing"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storetest"
)

// The test of a store's driver is one call. The test of memstore is a template for open.
func ExampleRun() {
	var open func(tb testing.TB) storetest.Service
	testContract := func(t *testing.T) { storetest.Run(t, open) }
	_ = testContract // func TestContract(t *testing.T)
}
