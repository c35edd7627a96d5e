package redisconn

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Facts about the copies of a failed call. Package rediskinds explains the rest of an error.
var (
	ErrNotDone  = errors.New("the call has no effect")
	ErrReplayed = errors.New("an earlier copy of the call may have taken effect")
)

func notSent(err error) error { return &factError{err, ErrNotDone} }

// factError is an error with a fact that is no part of its text.
type factError struct {
	error
	fact error
}

func (e *factError) Unwrap() []error { return []error{e.error, e.fact} }

// reload makes a client of a Cluster reload the nodes if that may help against err. go-redis does so by
// itself only when a node answers that a slot has moved, and otherwise after seconds.
func reload(client redis.UniversalClient, err error) {
	c, ok := client.(*redis.ClusterClient)
	if ok && err != nil && (!IsReply(err) || IsTemporary(c, err)) && !errors.Is(err, redis.ErrPoolTimeout) {
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

// RefuseReplicas returns an error if an option of a client sends reads to replicas. go-redis sets ReadOnly
// for all four options.
func RefuseReplicas(client redis.UniversalClient) error {
	if c, ok := client.(*redis.ClusterClient); !ok || !c.Options().ReadOnly {
		return nil
	}
	return errors.New("an option of the client sends reads to replicas, which lag behind their master, so a read may miss " +
		"acknowledged writes: leave out ReadOnly, ReplicaOnly, RouteByLatency and RouteRandomly")
}

// IsReply reports whether err is a reply of the server.
func IsReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// IsTemporary reports whether the server rejects requests for now.
func IsTemporary(client redis.UniversalClient, err error) bool {
	_, isCluster := client.(*redis.ClusterClient)
	return isCluster && wasNotRun(err) || ReplyHas(err, "LOADING", "BUSY", "READONLY", "MASTERDOWN",
		"NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", "ERR max number of clients")
}

// wasNotRun reports whether a node of a Cluster has not run a command: another node has the slot, or will.
func wasNotRun(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// ReplyHas reports whether err is an error reply with one of the codes or phrases. Redis before 7.0
// quotes the error of a command in a script.
func ReplyHas(err error, codes ...string) bool {
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

// IsDial reports whether no connection could be made.
func IsDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
