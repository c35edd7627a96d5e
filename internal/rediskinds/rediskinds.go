// Package rediskinds explains errors of package redisconn to the drivers on Redis, and to their users.
package rediskinds

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Explain adds advice and the kinds of package driver to an error of the client. Its text begins with
// name, the package that called Redis. No text names a key. An error without a kind is an unknown
// outcome.
func Explain(client redis.UniversalClient, name string, err error) error {
	advice, kind := kindOf(client, name, err)
	text := name + ": " + withoutQuotes(err)
	if advice != "" {
		text += " (" + advice + ")"
	}
	e := &explained{text, []error{err}}
	if kind != nil {
		e.causes = append(e.causes, kind)
	}
	if errors.Is(err, redisconn.ErrNotDone) {
		e.causes = append(e.causes, driver.ErrNotDone)
	}
	if errors.Is(err, redisconn.ErrReplayed) || redis.HasErrorPrefix(err, "WRITTEN") { // see redisconn.CallsLua
		e.causes = append(e.causes, driver.ErrReplayed)
	}
	return e
}

// explained is an error whose kinds are no part of its text.
type explained struct {
	text   string
	causes []error // the error of the client, and the kinds
}

func (e *explained) Error() string   { return e.text }
func (e *explained) Unwrap() []error { return e.causes }

// errNoMemory is the kind of a call without memory. Redis checks the memory before the first write of a
// script, and at no later write.
var errNoMemory = errors.Join(driver.ErrRefused, driver.ErrNotDone)

// missingRight precedes the name of a package.
const missingRight = "the ACL user lacks a right: grant those that are listed in the documentation of package "

// kindOf derives advice and the kind of an error of the package name from its text. No other function
// does. A nil kind is an unknown outcome, unless the request was not sent. A reply that is not listed
// here has a nil kind, because a proxy that lost the answer of Redis sends a reply of its own.
func kindOf(client redis.UniversalClient, name string, err error) (advice string, kind error) {
	_, isCluster := client.(*redis.ClusterClient)
	has := func(codes ...string) bool { return redisconn.ReplyHas(err, codes...) }
	switch {
	case errors.Is(err, redisconn.ErrUnknownClient):
		return "", driver.ErrRefused
	case has("WRONGTYPE", "FOREIGN"):
		return "a Redis key holds data of another program: choose another Namespace, or remove the key", driver.ErrForeign
	case has("NEWER"):
		return "a newer version of this library has written it: use one version in all processes", driver.ErrRefused
	case has("FENCE"):
		return "correct the clock of the server: it is wrong, or was when the lock was last granted", driver.ErrRefused
	case has("FLOOR"):
		return "", driver.ErrFloor
	case has("NOAUTH", "WRONGPASS"), strings.Contains(err.Error(), "unauthenticated"):
		return "check the user and password of the client", driver.ErrRights
	case has("NOPERM", "The user executing the script can't", "ERR ACL failure in script:"):
		return missingRight + name, driver.ErrRights
	case has("OOM"):
		return "raise maxmemory of Redis, or delete sessions, which needs no memory; held leases are still renewed and released", errNoMemory
	case has("MISCONF"):
		return "Redis cannot write to its disk: free space there, or correct its settings", driver.ErrRefused
	case has("ERR unknown command") && strings.Contains(err.Error(), "'sentinel'"):
		return "this is a server, and no Sentinel: give the client the addresses of the Sentinels", driver.ErrRefused
	case has("ERR unknown command"):
		return "this is a Sentinel, or a Redis that lacks commands: for Sentinels write redis+sentinel:// or use " +
			"redis.NewFailoverClient; a proxy or rename-command removes commands", driver.ErrRefused
	case has("ERR Unknown Redis command", "ERR unsupported command"):
		return "use Redis itself, with all its commands: a proxy or rename-command removes some", driver.ErrRefused
	case has("ERR Protocol error:", "ERR wrong number of arguments", "ERR Error compiling script", "NOPROTO",
		"CROSSSLOT", "DENIED"):
		return "", driver.ErrRefused
	case has("ERR DB index is out of range"):
		return "the server has fewer databases: choose another one, such as 0, or raise databases of Redis", driver.ErrRefused
	case has("ERR This instance has cluster support disabled"):
		return "this server is in no Cluster: make the client with redis.NewClient", driver.ErrRefused
	case errors.Is(err, redis.Nil) && strings.Contains(err.Error(), unnamed) && !redisconn.IsDial(err):
		return "correct MasterName of the client, or master_name of the URL", driver.ErrRefused
	case has("ERR SELECT is not allowed in cluster mode"), !isCluster && has("MOVED", "ASK"):
		return "this node belongs to a Redis Cluster: make the client with redis.NewClusterClient", driver.ErrRefused
	case has("READONLY"):
		return "this node is a replica, or became one in a failover: give the client the address of the master", driver.ErrTemporary
	case redisconn.IsTemporary(client, err):
		return "", driver.ErrTemporary
	case strings.Contains(err.Error(), "redis: can't parse"), strings.Contains(err.Error(), "redis: invalid reply"):
		return "this is no Redis, but perhaps HTTP: correct the host and the port of the client", nil
	case redisconn.IsDial(err) && (isCluster || redisconn.FollowsSentinels(client)):
		// Another node may be about to take over.
		return "start Redis, or correct the addresses of the client", driver.ErrTemporary
	case redisconn.IsDial(err):
		return "start Redis, or correct the address of the client", nil
	}
	return "", nil
}

// unnamed is in the error of a client that no Sentinel answers with a master.
const unnamed = "redis: all sentinels specified in configuration are unreachable: "

// quote is what go-redis or Redis quotes in a line: a text that go-redis cannot read, or the first
// arguments of an unknown command. They can be keys, messages and IDs.
var quote = regexp.MustCompile(`(redis: can't parse|redis: invalid reply).*|, with args beginning with.*`)

// withoutQuotes is the text of an error without its quotes. The answers of all Sentinels become one line.
func withoutQuotes(err error) string {
	text := quote.ReplaceAllString(err.Error(), "$1")
	_, answers, fromSentinels := strings.Cut(text, unnamed)
	if !fromSentinels {
		return text
	}
	answers = strings.ReplaceAll(answers, redis.Nil.Error(), "its name is not known")
	lines := slices.Compact(strings.Split(answers, "\n"))
	return "no Sentinel names the master: " + strings.Join(lines, "; ")
}
