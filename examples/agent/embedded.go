package main

import (
	"errors"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/belugalock/belugalock/examples/agent/internal/scratch"
)

// ownQuorum is the -lock for a quorum of embedded nodes.
const ownQuorum = "redlock"

// embedded are servers of Redis in this program.
type embedded struct {
	all   []*miniredis.Miniredis
	nodes []*miniredis.Miniredis // those of them that are the nodes of a quorum
}

func (e *embedded) start() (*miniredis.Miniredis, error) {
	redis, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	redis.ClockTTL(true) // or no lock would ever expire
	e.all = append(e.all, redis)
	return redis, nil
}

func (e *embedded) close() {
	for _, redis := range e.all {
		redis.Close()
	}
}

// serve starts the servers that cfg needs, and gives cfg their URLs. The store is where the locks
// are. Beside a quorum it is a server of its own.
func (e *embedded) serve(cfg *config) (err error) {
	one := func(url *string) {
		redis, failed := e.start()
		if err = errors.Join(err, failed); err == nil {
			*url = "redis://" + redis.Addr()
		}
	}
	switch cfg.Lock {
	case "":
		one(&cfg.Lock)
	case ownQuorum:
		cfg.Lock, err = e.quorum(3)
	}
	switch {
	case cfg.Store != "":
	case scratch.IsQuorum(cfg.Lock):
		one(&cfg.Store)
	default:
		cfg.Store = cfg.Lock
	}
	return err
}

// quorum starts the nodes of a quorum, and returns its URL. They never start again, so nothing waits
// for restarts.
func (e *embedded) quorum(n int) (url string, err error) {
	var addrs []string
	for range n {
		node, err := e.start()
		if err != nil {
			return "", err
		}
		node.Server().SetPreHook(showsServer(node.Addr()))
		e.nodes, addrs = append(e.nodes, node), append(addrs, node.Addr())
	}
	return "redlock+redis://" + strings.Join(addrs, ",") + "?restart_delay=-1s", nil
}

// showsServer answers INFO, by which a quorum tells its nodes apart. miniredis knows no section "server".
func showsServer(runID string) server.Hook {
	return func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "INFO" {
			return false
		}
		c.WriteBulk("run_id:" + runID + "\r\nuptime_in_seconds:0\r\n")
		return true
	}
}

// killer returns a function that ends a node of the quorum, or nil if this program has started none.
func (e *embedded) killer() func() {
	if len(e.nodes) == 0 {
		return nil
	}
	return e.nodes[0].Close
}

// about says for the report where locks and histories are, and which flags say so.
func (cfg config) about() (locks, histories, flags string) {
	const embedded = "on a Redis, embedded in the program"
	histories = "on the same server"
	switch {
	case cfg.Lock == "":
		locks = embedded
	case cfg.Lock == ownQuorum:
		locks, histories, flags = "on a quorum of three Redis nodes, embedded in the program", embedded, " -lock "+ownQuorum
	case scratch.IsQuorum(cfg.Lock):
		locks, histories, flags = "on the quorum at -lock", embedded, " -lock URL"
	default:
		locks, flags = "on the server at -lock", " -lock URL"
	}
	if cfg.Store != "" && cfg.Store != cfg.Lock {
		histories, flags = "on the server at -store", flags+" -store URL"
	}
	return locks, histories, flags
}
