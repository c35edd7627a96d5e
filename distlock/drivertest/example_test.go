package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// newDriver stands for the backend under test.
func newDriver(testing.TB) driver.Driver { return memlock.NewDriver() }

// The test of a backend is one line. A backend with a server fills the other fields of Service.
func ExampleRun() {
	testConformance := func(t *testing.T) { drivertest.Run(t, drivertest.Service{New: newDriver}) }
	_ = testConformance // func TestConformance(t *testing.T)
}

func ExampleBenchmark() {
	benchmarkAcquire := func(b *testing.B) { drivertest.Benchmark(b, newDriver) }
	_ = benchmarkAcquire // func BenchmarkAcquire(b *testing.B)
}

// An application tests how it handles a lock service that does not answer.
func ExampleNewFaults() {
	ctx := context.Background()
	faults := drivertest.NewFaults(memlock.NewDriver())
	locker, err := distlock.New(faults, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)

	faults.Inject(func(call drivertest.Call) drivertest.Fault {
		if call.Op == drivertest.Acquire {
			return drivertest.Fault{Before: driver.ErrNotDone}
		}
		return drivertest.Fault{}
	})
	_, err = locker.TryAcquire(ctx, "order-42")
	fmt.Println(errors.Is(err, distlock.ErrUnavailable), faults.Calls(drivertest.Acquire) > 0)
	// Output: true true
}
