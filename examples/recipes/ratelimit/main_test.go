package main

import (
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

// Each instance alone makes its calls in less than half of the time that both need together.
func TestRateLimit_twoInstances_shareRate(t *testing.T) {
	const calls, burst = 20, 1
	const least = (2*calls - burst) * time.Second / 10
	url := servers.SharedRedis(t).URL()
	start := time.Now()
	var instances [2]*recipetest.Process
	for i := range instances {
		instances[i] = recipetest.Start(t, "-redis", url, "-rate", "10", "-calls", "20")
	}
	for _, p := range instances {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(p.Output(), " call\n"); n != calls {
			t.Errorf("an instance made %d calls, want %d", n, calls)
		}
	}
	// Redis rounds times to microseconds.
	if took := time.Since(start); took < least-time.Millisecond {
		t.Errorf("%d calls took %v, want at least %v", 2*calls, took, least)
	}
}

func TestRateLimit_redisDown_noCall(t *testing.T) {
	server := servers.StartRedis(t)
	server.Kill()
	p := recipetest.Start(t, "-redis", "redis://"+server.Addr(), "-calls", "1")
	if err := p.Wait(); err == nil {
		t.Error("an instance without Redis ends without an error")
	}
	if output := p.Output(); strings.Contains(output, " call\n") {
		t.Errorf("an instance without Redis calls:\n%s", output)
	}
}
