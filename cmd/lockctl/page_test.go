package main

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

const page = "../../docs/operations/lockctl.md"

var shown = regexp.MustCompile("(?s)```console\n\\$ lockctl ([^\n]*)\n(.*?)```")

// The commands of the page run in their order, and print what the page shows.
func TestPage_commandsPrintAsShown(t *testing.T) {
	text, err := os.ReadFile(page)
	must(t, err)
	s := newScene(t)
	servers.Await(t, 30*time.Second, "an older lock", func() bool { return !strings.Contains(lockctl(t, "show", sceneKey).out, "held for  0s") })
	acquire(t, s.holder.driver, "billing", "biller-0:77")
	blocks := shown.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 7 {
		t.Fatalf("the page shows %d commands", len(blocks))
	}
	for _, block := range blocks {
		line := regexp.MustCompile(`--token \d+`).ReplaceAllString(block[1], "--token "+token(s.holder))
		if strings.HasPrefix(line, "doctor") {
			continue // its own test compares it
		}
		if strings.HasPrefix(line, "session delete") {
			s.endLocks(t)
		}
		t.Run(line, func(t *testing.T) {
			lockctl(t, strings.Fields(line)...).places(t, 0, tokens.ReplaceAllString(block[2], "TOKEN"))
		})
	}
}

const (
	sceneKey    = "tenant-7:session-4711"
	sceneHolder = "agent-5f6d-x2x9z:1"
)

// scene is a session with two exchanges, and its lock with a holder and two waiters. LOCKCTL_URL
// has its server.
type scene struct{ holder owner }

func newScene(t *testing.T) scene {
	server := servers.SharedRedis(t)
	t.Setenv("LOCKCTL_URL", server.URL())
	c := newChat(t, server.URL(), sceneKey)
	c.save(t, "order-1", "What is a lease?", "A lock that ends.")
	c.save(t, "", "And a\ntoken?", "A number that rises.")
	d := open(t, server.URL())
	s := scene{acquire(t, d, sceneKey, sceneHolder)}
	for _, waiter := range []string{"agent-5f6d-k8s2c:1", "agent-5f6d-p4q7w:1"} {
		acquire(t, d, sceneKey, waiter)
	}
	return s
}

// endLocks ends the lock of the holder, and of each waiter to which it passes.
func (s scene) endLocks(t *testing.T) {
	t.Helper()
	for shown := lockctl(t, "show", sceneKey); shown.code == 0 && !t.Failed(); shown = lockctl(t, "show", sceneKey) {
		lockctl(t, "release", sceneKey, "--token", tokens.FindString(shown.out), "--yes").is(t, 0, "Released.")
	}
}

func TestPage_namesFieldsAndCodes(t *testing.T) {
	text, err := os.ReadFile(page)
	must(t, err)
	for _, value := range []any{lock{}, waiter{}, exchange{}, question{}, verdict{}, problem{}} {
		kind := reflect.TypeOf(value)
		for i := range kind.NumField() {
			name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("the page does not name the field %s of a %s", name, kind.Name())
			}
		}
	}
	for code := range exitUnsupported + 1 {
		if !strings.Contains(string(text), "\n| "+strconv.Itoa(code)+" | ") {
			t.Errorf("the page does not name the exit code %d", code)
		}
	}
}
