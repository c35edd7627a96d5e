package redlock

import (
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func BenchmarkNode(b *testing.B) {
	drivertest.Benchmark(b, func(tb testing.TB) driver.Driver { return openNode(tb, onNode(tb)) })
}
