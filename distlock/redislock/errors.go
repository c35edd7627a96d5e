package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
)

// foreign is the error for data that another program has put in the place of a lock.
func foreign(cause error) error {
	return fmt.Errorf("redislock: %w: choose another Namespace, or remove the Redis key: %w", driver.ErrForeign, cause)
}

// failed turns an error of the client into the driver's. A Cluster whose nodes change their parts is looked at anew:
// go-redis does that by itself only when a node answers that it has moved, and otherwise after seconds.
func (s *service) failed(err error) error {
	lookAnew(s.own, err)
	return Explain(s.client, "redislock", err)
}

func lookAnew(client redis.UniversalClient, err error) {
	if c, ok := client.(*redis.ClusterClient); ok && (!isReply(err) || isTemporary(err)) && !errors.Is(err, redis.ErrPoolTimeout) {
		c.ReloadState(context.Background())
	}
}

// topology is what the caller's client is made for.
type topology int

const (
	oneNode topology = iota
	sentinels
	cluster
)

func (s *service) topology() topology { return topologyOf(s.client) }

func topologyOf(client redis.UniversalClient) topology {
	switch c := client.(type) {
	case *redis.ClusterClient:
		return cluster
	case *redis.Client:
		if c.Options().Addr == sentinelAddr {
			return sentinels
		}
	}
	return oneNode
}

// isReply reports whether err is what the server answered.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isTemporary reports whether the server turns requests away for now.
func isTemporary(err error) bool {
	for _, code := range []string{
		"LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "ERR max number of clients",
	} {
		if says(err, code) {
			return true
		}
	}
	return false
}

// explain adds to an error of Redis what to do about it, and of what kind it is. No text names a key. Its text begins with the name of
// the package that called Redis.
func explain(err error, on topology, name string) error {
	err = discreet(err)
	kind, advice := driver.ErrRefused, ""
	switch {
	case says(err, "WRONGTYPE"), says(err, "FOREIGN"):
		return foreign(err)
	case says(err, "FENCE"):
		advice = "the server's clock is wrong, or was when it last granted the lock"
	case says(err, "FLOOR"):
		kind = driver.ErrFloor
	case says(err, "NOAUTH"), says(err, "WRONGPASS"), strings.Contains(err.Error(), "unauthenticated"):
		advice = "check the user and password that the client was given"
	case says(err, "NOPERM"), says(err, "The user executing the script can't"):
		advice = "the ACL user lacks a right, the package documentation of " + name + " lists what is needed"
	case says(err, "OOM"):
		advice = "Redis is out of memory: raise maxmemory or free some; leases that are held are still renewed and released"
	case on != cluster && (says(err, "MOVED") || says(err, "ASK")):
		advice = "this node belongs to a Redis Cluster: make the client with redis.NewClusterClient"
	case says(err, "READONLY"):
		kind, advice = driver.ErrTemporary, "this node is a replica, or became one in a fail-over: the client needs the address of the master"
	case isTemporary(err):
		kind = driver.ErrTemporary
	case isDial(err) && on != oneNode: // another node may be about to take over
		kind, advice = driver.ErrTemporary, "is Redis running at the addresses that the client was given?"
	case isDial(err):
		kind, advice = nil, "is Redis running at the address that the client was given?"
	default:
		kind = nil
	}
	if advice != "" {
		err = fmt.Errorf("%w (%s)", err, advice)
	}
	return &serverError{kind, fmt.Errorf("%s: %w", name, err)}
}

// discreet leaves out of an error's text what it quotes. Redis repeats the first arguments of a command that it does not know, as
// where commands were renamed or a proxy comes between, and go-redis what it cannot read: keys, messages and turn IDs.
func discreet(err error) error {
	text := err.Error()
	for _, quotes := range []struct {
		after string
		keep  bool
	}{{", with args beginning with", false}, {"redis: can't parse", true}, {"redis: invalid reply", true}} {
		i := strings.Index(text, quotes.after)
		if i < 0 {
			continue
		}
		if quotes.keep {
			i += len(quotes.after)
		}
		return &discreetError{err, text[:i]}
	}
	return err
}

type discreetError struct {
	error
	text string
}

func (e *discreetError) Error() string { return e.text }
func (e *discreetError) Unwrap() error { return e.error }

// serverError is an error of a known kind, which is not part of its text.
type serverError struct {
	kind error // driver.ErrTemporary, driver.ErrRefused, driver.ErrFloor or nil
	error
}

func (e *serverError) Unwrap() error        { return e.error }
func (e *serverError) Is(target error) bool { return target == e.kind }

// says reports whether err is an error reply with the given code, also when the reply quotes an error that a
// command in a script met, as Redis before 7.0 does.
func says(err error, code string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return text == code || strings.HasPrefix(text, code+" ") || strings.Contains(text, " "+code+" ") || strings.Contains(text, "-"+code+" ")
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

var errReply = errors.New("redislock: the server's reply makes no sense: do other versions of this library, or proxies, come between?")
