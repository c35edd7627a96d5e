package main

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/testservers"
)

const page = "../../docs/operations/lockctl.md"

var shown = regexp.MustCompile("(?s)```console\n\\$ lockctl ([^\n]*)\n(.*?)```")

// The commands of the page run in their order, and print what the page shows.
func TestPage_commandsPrintAsShown(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const key = "tenant-7:session-4711"
	url := testservers.SharedRedis(t).URL()
	c := newChat(t, url, key)
	c.save(t, "order-1", "What is a lease?", "A lock that ends.")
	c.save(t, "", "And a\ntoken?", "A number that rises.")
	d := open(t, url)
	holder := acquire(t, d, key, "agent-5f6d-x2x9z:1")
	waiters := []owner{acquire(t, d, key, "agent-5f6d-k8s2c:1"), acquire(t, d, key, "agent-5f6d-p4q7w:1")}
	t.Setenv("LOCKCTL_URL", url)
	testservers.Await(t, 30*time.Second, "an older lock", func() bool { return !strings.Contains(lockctl(t, "show", key).out, "held for  0s") })
	acquire(t, d, "billing", "biller-0:77")
	blocks := shown.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 7 {
		t.Fatalf("the page shows %d commands", len(blocks))
	}
	for _, block := range blocks {
		line := regexp.MustCompile(`--token \d+`).ReplaceAllString(block[1], "--token "+token(holder))
		if strings.HasPrefix(line, "doctor") {
			continue // its own test compares it
		}
		if strings.HasPrefix(line, "session delete") {
			for _, w := range waiters { // the lock passes to them
				lockctl(t, "release", key, "--token", held(t, key), "--yes").is(t, 0, w.req.Holder)
			}
		}
		t.Run(line, func(t *testing.T) {
			lockctl(t, strings.Fields(line)...).places(t, 0, tokens.ReplaceAllString(block[2], "TOKEN"))
		})
	}
}

// held returns the token of a held lock.
func held(t *testing.T, key string) string {
	return regexp.MustCompile(`\d{16}`).FindString(lockctl(t, "show", key).out)
}

func TestPage_namesFieldsAndCodes(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []any{lock{}, waiter{}, exchange{}, verdict{}, problem{}} {
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
