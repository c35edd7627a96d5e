package memlock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDriver(testing.TB) driver.Driver { return memlock.NewDriver() }

func TestConformance(t *testing.T) { drivertest.Run(t, drivertest.Service{New: newDriver}) }

func BenchmarkAcquireRelease(b *testing.B) { drivertest.Benchmark(b, newDriver) }
