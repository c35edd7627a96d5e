package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The help knows each command of a page, with its flags. Their own tests have what the commands do.
func TestPages_commandsExist(t *testing.T) {
	all := docs.Commands(t, "lockctl")
	for _, c := range all {
		command := "lockctl"
		for _, word := range c.Words[1:] {
			if word != strings.ToLower(word) || strings.HasPrefix(word, "-") {
				break
			}
			command += " " + word
		}
		if r := lockctl(t, strings.Split(strings.ReplaceAll(strings.Join(c.Words[1:], " "), " N", " 1")+" -h", " ")...); r.code != 0 || !strings.Contains(r.out, "\n  "+command) {
			t.Errorf("%s:%d: %q: %+v", c.Page, c.Line, c.Words, r)
		}
	}
	if len(all) < 15 {
		t.Errorf("the pages have %d commands", len(all))
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
