package main

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestList_showsHeldAndAwaitedLocks(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		lockctl(t, "list", "--url", url).prints(t, 0, `No lock is held in the namespace "distlock".`)
		lockctl(t, "list", "--url", url, "-o", "json").prints(t, 0, "{\n  \"locks\": [],\n  \"more\": false\n}")
		d := open(t, url)
		acquire(t, d, "zebra", "host-1:10")
		acquire(t, d, "apple", "host-2:20")
		acquire(t, d, "apple", "host-3:30")
		lockctl(t, "list", "--url", url).prints(t, 0, `
KEY    HOLDER     AGE  TTL  WAITERS  TOKEN  TRACE ID
apple  host-2:20  9s  9s  1  TOKEN  0af7651916cd43dd8448eb211c80319c
zebra  host-1:10  9s  9s  0  TOKEN  0af7651916cd43dd8448eb211c80319c`)
		longest := lockctl(t, "list", "--longest", "-o", "json", "--url", url).is(t, 0)
		var document struct {
			Locks []lock
			More  bool
		}
		must(t, json.Unmarshal([]byte(longest.out), &document))
		if l := document.Locks; len(l) != 2 || l[0].Age < l[1].Age || l[0].TTL < 1 || l[0].Token < 1 || document.More {
			t.Errorf("--longest prints %s", longest.out)
		}
		lockctl(t, "list", "--limit", "1", "--url", url).is(t, 0, "more locks than these 1")
		lockctl(t, "list", "--url", inNamespace(url, "other")).prints(t, 0, `No lock is held in the namespace "other".`)
	})
}

func TestList_controlCharacters_escaped(t *testing.T) {
	url := postgresURL(t)
	acquire(t, open(t, url), "esc\u2028", "a \x1b[31mred\x1b[0m holder")
	lockctl(t, "list", "--url", url).is(t, 0, `esc\u2028  a \x1b[31mred\x1b[0m holder`)
}

func TestShow_holderAndWaiters(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		lockctl(t, "show", "apple", "--url", url).prints(t, exitFinding, "key  apple\nholder  (free)\nwaiters  0")
		lockctl(t, "show", "", "--url", url).is(t, exitUsage, "a lock needs a name")
		d := open(t, url)
		acquire(t, d, "apple", "host-2:20")
		lockctl(t, "show", "apple", "--url", url).prints(t, 0, `
key  apple
holder  host-2:20
held for  9s
TTL left  9s
token  TOKEN
trace ID  0af7651916cd43dd8448eb211c80319c
waiters  0`)
		lockctl(t, "show", "apple", "-o", "json", "--url", url).prints(t, 0, `{
  "key": "apple",
  "held": true,
  "holder": "host-2:20",
  "age_ms": 9,
  "ttl_ms": 9,
  "waiters": 0,
  "token": TOKEN,
  "trace_id": "0af7651916cd43dd8448eb211c80319c"
}`)
		waiting := []owner{acquire(t, d, "apple", "host-3:30"), acquire(t, d, "apple", "host-2:20")}
		table := lockctl(t, "show", "apple", "--url", url).is(t, 0, "waiters   2", "TICKET  WAITER     ALIVE  TRACE ID")
		if !regexp.MustCompile(`(?s)TICKET.*host-3:30.*host-2:20`).MatchString(table.out) {
			t.Errorf("it printed\n%s", table.out)
		}
		var l lock
		must(t, json.Unmarshal([]byte(lockctl(t, "show", "apple", "-o", "json", "--url", url).is(t, 0).out), &l))
		for i, o := range waiting {
			if w := l.Queue[i]; w.Ticket != o.reply.Ticket || w.Holder != o.req.Holder || w.Alive < 1 ||
				w.Trace != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("waiter %d is %+v", i, w)
			}
		}
	})
}

func token(o owner) string { return strconv.FormatInt(o.reply.Fence, 10) }

// inNamespace returns the URL of a namespace.
func inNamespace(url, name string) string {
	if strings.Contains(url, "?") {
		return url + "&namespace=" + name
	}
	return url + "?namespace=" + name
}
