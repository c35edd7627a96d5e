package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// differs matches what depends on the machine.
var differs = regexp.MustCompile(`Redis \d\S+`)

// The page shows the output for this server.
func TestDoctor_sickServer(t *testing.T) {
	t.Parallel()
	r := servers.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	shown, err := os.ReadFile(page)
	must(t, err)
	_, want, found := strings.Cut(string(shown), "$ lockctl doctor\n")
	want, _, ends := strings.Cut(want, "```")
	got := strings.ReplaceAll(lockctl(t, "doctor", "--url", r.URL()).is(t, exitFinding).out, r.Addr(), "localhost:6379")
	if hide := differs.ReplaceAllString; !found || !ends || hide(got, "…") != hide(want, "…") {
		t.Errorf("it printed\n%s\nthe page shows\n%s", got, want)
	}

	var report struct {
		Findings []struct{ Level, Check, Server, Found, Means, Do string }
	}
	printed := lockctl(t, "doctor", "--url", r.URL(), "-o", "json").is(t, exitFinding)
	must(t, json.Unmarshal([]byte(printed.out), &report))
	for _, f := range report.Findings {
		if f.Found == "maxmemory-policy allkeys-lru" && (f.Level != "problem" || f.Server != r.Addr() || f.Do != "CONFIG SET maxmemory-policy noeviction") {
			t.Errorf("%+v", f)
		}
	}
	for setting, value := range map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes"} {
		must(t, second(r.Do("CONFIG", "SET", setting, value)))
	}
	healthy := lockctl(t, "doctor", "--url", r.URL()).is(t, 0, "0 problems, 0 warnings, 1 note, 7 ok")
	if !strings.HasPrefix(healthy.out, r.Addr()+"\n  ok       connection     answers\n") {
		t.Errorf("%q", healthy.out)
	}
}
