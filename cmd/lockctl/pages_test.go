package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// promises are the commands of all pages, and what the pages say of them.
var promises = map[string]struct {
	before   func(t *testing.T, s scene)
	prints   []string // with the exit code 0, on a scene
	after    func(t *testing.T, s scene)
	mistyped string // with the exit code 1, for a key that no scene has
}{
	"doctor":         {prints: []string{"ok  connection  answers", "ok  rights  all", "→ CONFIG SET appendonly yes", "the service answers"}},
	"list":           {prints: []string{"KEY  HOLDER  AGE  TTL  WAITERS  TOKEN  TRACE ID", sceneKey + "  " + sceneHolder + "  9s  9s  2  TOKEN"}},
	"list --longest": {prints: []string{sceneHolder, "WAITERS  TOKEN"}},
	"show KEY":       {prints: []string{"holder  " + sceneHolder, "TTL left  9s", "token  TOKEN", "trace ID"}, mistyped: "(free)"},
	"release KEY --token N": {
		prints: []string{"Released. The lock of " + sceneHolder},
		after: func(t *testing.T, s scene) {
			lockctl(t, "show", sceneKey).is(t, 0, s.waiters[0].req.Holder)
		},
		mistyped: "the lock is free; nothing was changed",
	},
	"stop KEY": {
		prints:   []string{"Stopped. Nothing more of it is stored."},
		mistyped: "the lock is free, so no turn runs; nothing was changed",
	},
	"stop KEY --id ID": {
		prints:   []string{"Stopped. Nothing more of it is stored."},
		mistyped: "not confirmed; nothing was changed",
	},
	"session show KEY":   {prints: []string{"PLACE  GRANTED  ID", "order-1"}, mistyped: "the session has no exchange"},
	"session verify KEY": {prints: []string{"No problem was found."}, mistyped: "the session has no exchange"},
	"session inbox KEY": {
		before: func(t *testing.T, s scene) {
			must(t, newChat(t, s.server.URL(), sceneKey).Put(t.Context(), "order-2", []byte("a text")))
		},
		prints:   []string{"AGE  ID", "order-2"},
		mistyped: "nothing is pending",
	},
	"session fork KEY TO": {
		prints: []string{"Copied."},
		after: func(t *testing.T, s scene) {
			lockctl(t, "session", "show", "TO").is(t, 0, "PLACE")
		},
		mistyped: "the session has no exchange",
	},
	"session delete KEY": {
		before: func(t *testing.T, s scene) { s.endLocks(t) },
		prints: []string{"Deleted."},
		after: func(t *testing.T, s scene) {
			lockctl(t, "session", "show", sceneKey).is(t, exitFinding, "the session has no exchange")
			if mark, err := s.server.Do("GET", "session:{"+sceneKey+"}:mark"); mark == "" {
				t.Errorf("the mark is gone: %v", err)
			}
		},
		mistyped: "the session has no exchange: check its name",
	},
	"completion bash": {prints: []string{"complete -o default"}},
}

// Each command of a page keeps its promise.
func TestPages_commandsKeepTheirPromises(t *testing.T) {
	shown := map[string]bool{}
	for _, c := range docs.Commands(t, "lockctl") {
		line := strings.Join(c.Words[1:], " ")
		if shown[line] = true; promises[line].prints == nil {
			t.Errorf("%s:%d: the test does not know lockctl %s", c.Page, c.Line, line)
		}
	}
	for line, promise := range promises {
		if !shown[line] {
			t.Errorf("no page has lockctl %s", line)
		}
		t.Run(line, func(t *testing.T) {
			s := newScene(t)
			if promise.before != nil {
				promise.before(t, s)
			}
			args := func(key string) []string {
				return strings.Fields(strings.NewReplacer("KEY", key, "--token N", "--token "+token(s.holder)).Replace(line))
			}
			r := lockctlWith(t.Context(), strings.NewReader("yes\n"), args(sceneKey)...)
			r.out = stable(r.out)
			r.is(t, 0, promise.prints...)
			if promise.after != nil {
				promise.after(t, s)
			}
			if promise.mistyped != "" {
				lockctlWith(t.Context(), strings.NewReader("no\n"), args("mistyped")...).is(t, exitFinding, promise.mistyped)
			}
		})
	}
}

// A user with the documented rights alone may not list. That is no sign of an outage, so the first row of
// the runbook names the exit code and the word by which an operator sees the difference.
func TestRunbook_listWithoutTheRightToScan(t *testing.T) {
	server := servers.StartRedis(t)
	must(t, second(server.Do(strings.Fields(docs.LockRights.Blocks(t, "redis")[0])...)))
	acquire(t, open(t, server.URL()), sceneKey, sceneHolder)
	t.Setenv("LOCKCTL_URL", strings.Replace(server.URL(), "://", "://agent:password@", 1))
	lockctl(t, "list", "--longest").is(t, exitRefused, "'scan'")
	lockctl(t, "show", sceneKey).is(t, 0, sceneHolder)
	if row := docs.FirstLook.Table(t)[0][0]; !strings.Contains(row, strconv.Itoa(exitRefused)) || !strings.Contains(row, "`scan`") {
		t.Errorf("the first row of the runbook is about %s", row)
	}
}

// An operator with the documented rights may look, and with those of the program may end a lock and stop a
// turn. doctor
// finds no right that is missing.
func TestOperator_documentedRights(t *testing.T) {
	server := servers.StartRedis(t, "--appendonly", "yes", "--lazyfree-lazy-expire", "yes")
	grant := func(place docs.Place) {
		t.Helper()
		command := strings.Replace(place.Blocks(t, "redis")[0], "SETUSER agent", "SETUSER oncall", 1)
		must(t, second(server.Do(strings.Fields(command)...)))
	}
	grant(docs.Place{Page: docs.LockRights.Page, Heading: "## Rights of an operator"})
	c := newChat(t, server.URL(), sceneKey)
	c.save(t, "order-1", "q", "a")
	d := open(t, server.URL())
	holder := acquire(t, d, sceneKey, sceneHolder)
	acquire(t, d, sceneKey, "agent-5f6d-k8s2c:1")
	t.Setenv("LOCKCTL_URL", strings.Replace(server.URL(), "://", "://oncall:password@", 1))
	t.Setenv("LOCKCTL_STORE", os.Getenv("LOCKCTL_URL"))
	for _, line := range []string{"list", "show " + sceneKey, "session list", "session show " + sceneKey,
		"session verify " + sceneKey} {
		lockctl(t, strings.Fields(line)...).is(t, 0)
	}
	if refused := servers.RefusedToUsers(t, server); refused != "" {
		t.Errorf("the server has refused %s", refused)
	}
	if r := lockctl(t, "doctor").is(t, 0, "0 problems, 0 warnings", "this user may not write"); strings.Contains(r.out, "ACL SETUSER") {
		t.Errorf("doctor advises rights:\n%s", r.out)
	}
	release := []string{"release", sceneKey, "--yes", "--token", token(holder)}
	lockctl(t, release...).is(t, exitRefused, "lacks a right")
	grant(docs.LockRights)
	lockctl(t, release...).is(t, 0, "Released.")
	stop := []string{"stop", sceneKey, "--yes", "--grace", "1ms"}
	lockctl(t, stop...).is(t, exitRefused, "lacks a right")
	grant(docs.Place{Page: docs.LockRights.Page, Heading: "## Rights for sessions"})
	lockctl(t, stop...).is(t, 0, "Stopped.")
}

// Each URL of a page reaches its server, with the user and the password in it.
func TestPages_urlsReachTheServer(t *testing.T) {
	server := servers.StartRedis(t)
	sentinel := servers.StartSentinelFor(t, server.Addr())
	must(t, second(server.Do("ACL", "SETUSER", "operator", "on", ">secret", "allkeys", "allchannels", "+@all")))
	acquire(t, open(t, server.URL()), sceneKey, sceneHolder)
	must(t, second(server.Do("ACL", "SETUSER", "default", "off")))
	here := strings.NewReplacer("USER:PASSWORD", "operator:secret", "user:password", "operator:secret", "mymaster", "belugalock",
		"HOST:26379", sentinel.Addr(), "HOST:6379", server.Addr(), "localhost:6379", server.Addr())
	commands := docs.Commands(t, "export")
	for _, c := range commands {
		name, url, _ := strings.Cut(c.Words[1], "=")
		t.Setenv(name, here.Replace(url))
		if r := lockctl(t, "list"); r.code != 0 || !strings.Contains(r.out, sceneHolder) {
			t.Errorf("%s:%d: with this URL lockctl list ends with %+v", c.Page, c.Line, r)
		}
	}
	if len(commands) < 3 {
		t.Errorf("the pages have %d URLs", len(commands))
	}
}
