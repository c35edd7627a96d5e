package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The kinds of an error. A driver translates them by package rediskinds. An error without a kind is an
// unknown outcome.
var (
	ErrTemporary = errors.New("the server cannot answer now")
	ErrRefused   = errors.New("the server refuses the call until an operator changes something")
	ErrRights    = fmt.Errorf("%w: a right is missing", ErrRefused)
	ErrForeign   = errors.New("the key holds data of another program")
	ErrFloor     = errors.New("the requested token is too far ahead of the clock of Redis")
	ErrNotDone   = errors.New("the call has no effect")
	ErrReplayed  = errors.New("an earlier copy of the call may have taken effect")
)

// Explain adds advice and a kind to an error of the client. Its text
// begins with name, the package that called Redis. No text names a key.
//
// If nodes of a Cluster may have changed roles, the client reloads them. go-redis does so by itself
// only when a node answers that a slot has moved, and otherwise after seconds.
func Explain(client redis.UniversalClient, name string, err error) error {
	reload(client, err)
	advice, kind := kindOf(client, err)
	text := name + ": " + discreet(err)
	if advice == missingRight {
		advice += name
	}
	if advice != "" {
		text += " (" + advice + ")"
	}
	return &kindError{kind, err, text}
}

// reload makes a client of a Cluster reload the nodes if that may help against err.
func reload(client redis.UniversalClient, err error) {
	c, ok := client.(*redis.ClusterClient)
	if ok && (!IsReply(err) || isTemporary(err)) && !errors.Is(err, redis.ErrPoolTimeout) {
		c.ReloadState(context.Background())
	}
}

// sentinelAddr is the address that go-redis puts into the options of a client that follows
// Sentinels. The Dialer of these options ignores the address and asks the Sentinels.
const sentinelAddr = "FailoverClient"

// FollowsSentinels reports whether Sentinels name the server of a client.
func FollowsSentinels(client redis.UniversalClient) bool {
	c, ok := client.(*redis.Client)
	return ok && c.Options().Addr == sentinelAddr
}

// IsReply reports whether err is a reply of the server.
func IsReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isTemporary reports whether the server rejects requests for now.
func isTemporary(err error) bool {
	return hasCode(err, "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "MOVED", "ASK", "TRYAGAIN",
		"CLUSTERDOWN", "ERR max number of clients")
}

// errFull is the kind of a call without memory. Redis checks the memory before the first write of a
// script, and at no later write.
var errFull = fmt.Errorf("%w: %w", ErrRefused, ErrNotDone)

// missingRight precedes the name of a package.
const missingRight = "the ACL user lacks a right: grant those that are listed in the documentation of package "

// kindOf derives advice and the kind of an error from its text. No other function does. A nil kind
// is an unknown outcome, unless the request was not sent. A reply that is not listed here has a nil
// kind, because a proxy that lost the answer of Redis sends a reply of its own.
func kindOf(client redis.UniversalClient, err error) (advice string, kind error) {
	_, isCluster := client.(*redis.ClusterClient)
	has := func(codes ...string) bool { return hasCode(err, codes...) }
	switch {
	case has("WRONGTYPE", "FOREIGN"):
		return "a Redis key holds data of another program: choose another Namespace, or remove the key", ErrForeign
	case has("NEWER"):
		return "a newer version of this library has written it: use one version in all processes", ErrRefused
	case has("FENCE"):
		return "correct the clock of the server: it is wrong, or was when the lock was last granted", ErrRefused
	case has("FLOOR"):
		return "", ErrFloor
	case has("NOAUTH", "WRONGPASS"), strings.Contains(err.Error(), "unauthenticated"):
		return "check the user and password of the client", ErrRights
	case has("NOPERM", "The user executing the script can't", "ERR ACL failure in script:"):
		return missingRight, ErrRights
	case has("OOM"):
		return "raise maxmemory of Redis, or delete sessions, which needs no memory; held leases are still renewed and released", errFull
	case has("MISCONF"):
		return "Redis cannot write to its disk: free space there, or correct its settings", ErrRefused
	case has("ERR unknown command") && strings.Contains(err.Error(), "'sentinel'"):
		return "this is a server, and no Sentinel: give the client the addresses of the Sentinels", ErrRefused
	case has("ERR unknown command"):
		return "this is a Sentinel, or a Redis that lacks commands: for Sentinels write redis+sentinel:// or use " +
			"redis.NewFailoverClient; a proxy or rename-command removes commands", ErrRefused
	case has("ERR Unknown Redis command", "ERR unsupported command"):
		return "use Redis itself, with all its commands: a proxy or rename-command removes some", ErrRefused
	case has("ERR Protocol error:", "ERR wrong number of arguments", "ERR Error compiling script", "NOPROTO",
		"CROSSSLOT", "DENIED"):
		return "", ErrRefused
	case has("ERR DB index is out of range"):
		return "the server has fewer databases: choose another one, such as 0, or raise databases of Redis", ErrRefused
	case has("ERR This instance has cluster support disabled"):
		return "this server is in no Cluster: make the client with redis.NewClient", ErrRefused
	case errors.Is(err, redis.Nil) && strings.Contains(err.Error(), unnamed) && !isDial(err):
		return "correct MasterName of the client, or master_name of the URL", ErrRefused
	case has("ERR SELECT is not allowed in cluster mode"), !isCluster && has("MOVED", "ASK"):
		return "this node belongs to a Redis Cluster: make the client with redis.NewClusterClient", ErrRefused
	case has("READONLY"):
		return "this node is a replica, or became one in a failover: give the client the address of the master", ErrTemporary
	case isTemporary(err):
		return "", ErrTemporary
	case slices.ContainsFunc(notRedis, func(text string) bool { return strings.Contains(err.Error(), text) }):
		return "this is no Redis, but perhaps HTTP: correct the host and the port of the client", nil
	case isDial(err) && (isCluster || FollowsSentinels(client)): // another node may be about to take over
		return "start Redis, or correct the addresses of the client", ErrTemporary
	case isDial(err):
		return "start Redis, or correct the address of the client", nil
	}
	return "", nil
}

// notRedis begin the texts of go-redis about what it cannot read, and quotes.
var notRedis = []string{"redis: can't parse", "redis: invalid reply"}

// unnamed is in the error of a client that no Sentinel answers with a master.
const unnamed = "redis: all sentinels specified in configuration are unreachable: "

// discreet leaves out the quotes of an error's text: they can be keys, messages and IDs. Redis
// quotes the first arguments of an unknown command. go-redis quotes what it cannot read, and has a line
// for each Sentinel.
func discreet(err error) string {
	begin, lines := "", []string{err.Error()}
	_, answers, fromSentinels := strings.Cut(err.Error(), unnamed)
	if fromSentinels {
		begin, lines = "no Sentinel names the master: ", strings.Split(answers, "\n")
	}
	for i, line := range lines {
		line, _, _ = strings.Cut(line, ", with args beginning with")
		for _, quoting := range notRedis {
			if before, _, ok := strings.Cut(line, quoting); ok {
				line = before + quoting
			}
		}
		if fromSentinels && line == redis.Nil.Error() {
			line = "its name is not known"
		}
		lines[i] = line
	}
	return begin + strings.Join(slices.Compact(lines), "; ")
}

// kindError is an error of a known kind, which is not part of its text.
type kindError struct {
	kind  error // or nil
	cause error
	text  string
}

func (e *kindError) Error() string        { return e.text }
func (e *kindError) Unwrap() error        { return e.cause }
func (e *kindError) Is(target error) bool { return errors.Is(e.kind, target) }

func withKind(kind, err error) error { return &kindError{kind, err, err.Error()} }

// hasCode reports whether err is an error reply with one of the codes. Redis before 7.0 quotes the
// error of a command in a script.
func hasCode(err error, codes ...string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return slices.ContainsFunc(codes, func(code string) bool {
		return text == code || strings.HasPrefix(text, code+" ") || strings.Contains(text, " "+code+" ") ||
			strings.Contains(text, "-"+code+" ")
	})
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
