package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/testservers"
)

func TestDoctor_sickServer(t *testing.T) {
	t.Parallel()
	r := testservers.StartRedis(t, "--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	lockctl(t, "doctor", "--url", r.URL()).is(t, exitFinding, "problem  eviction       allkeys-lru, with maxmemory 100.0 MB",
		"→ CONFIG SET maxmemory-policy noeviction", "1 problem, 0 warnings, 0 notes, 12 ok")

	var report struct {
		Findings []struct{ Level, Check, Server, Found, Means, Do string }
	}
	printed := lockctl(t, "doctor", "--url", r.URL(), "-o", "json").is(t, exitFinding)
	if err := json.Unmarshal([]byte(printed.out), &report); err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Check == "eviction" && (f.Level != "problem" || f.Server != r.Addr() || f.Do != "CONFIG SET maxmemory-policy noeviction") {
			t.Errorf("%+v", f)
		}
	}
	if _, err := r.Do("CONFIG", "SET", "maxmemory-policy", "noeviction"); err != nil {
		t.Fatal(err)
	}
	healthy := lockctl(t, "doctor", "--url", r.URL()).is(t, 0, "0 problems, 0 warnings, 0 notes, 13 ok")
	if !strings.HasPrefix(healthy.out, r.Addr()+"\n  ok       connection     answers in ") {
		t.Errorf("%q", healthy.out)
	}
}

func TestDoctor_badURL(t *testing.T) {
	t.Parallel()
	lockctl(t, "doctor").is(t, exitUsage, "use --url or LOCKCTL_URL")
	lockctl(t, "doctor", "--url", "redis://h:port").is(t, exitUsage, "invalid option")
	lockctl(t, "doctor", "--url", "redis://127.0.0.1:1", "--store", "http://h").is(t, exitUsage, "invalid option")
}
