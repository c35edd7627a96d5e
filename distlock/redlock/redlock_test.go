package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redlock"
)

// clientsOf makes a client for each address. Nothing listens there.
func clientsOf(t *testing.T, addrs ...string) (clients []redis.UniversalClient) {
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	return clients
}

func TestNew_unsuitableClients_refused(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	same := clientsOf(t, "h1:1")[0]
	three := func(third redis.UniversalClient) []redis.UniversalClient {
		return append(clientsOf(t, "h1:1", "h2:1"), third)
	}
	var none *redis.Client
	for what, c := range map[string]struct {
		clients []redis.UniversalClient
		text    string
	}{
		"no clients":       {nil, "redlock needs 3 nodes or more to survive the loss of one, and has 0"},
		"one node":         {clientsOf(t, "h1:1"), "use redislock with one node"},
		"two nodes":        {clientsOf(t, "h1:1", "h2:1"), "needs 3 nodes or more"},
		"four nodes":       {clientsOf(t, "h1:1", "h2:1", "h3:1", "h4:1"), "4 nodes survive the loss of no more nodes than 3"},
		"nil":              {three(nil), "the client of node 3 is a <nil>"},
		"a nil client":     {three(none), "the client of node 3 is a *redis.Client that is nil"},
		"a Cluster":        {three(cluster), "the client of node 3 is a *redis.ClusterClient"},
		"a Ring":           {three(ring), "each node is one server of its own"},
		"Sentinels":        {three(failover), "the client of node 3 is a *redis.Client that is nil, for several servers"},
		"an unknown type":  {three(struct{ redis.UniversalClient }{same}), "of an unknown type"},
		"one client twice": {append(three(same), same, clientsOf(t, "h4:1")[0]), "the nodes 1 and 3 have one address, h1:1"},
		"an address twice": {clientsOf(t, "h1:1", "h2:1", "h2:1"), "the nodes 2 and 3 have one address, h2:1"},
	} {
		locker, err := redlock.New(c.clients, nil)
		if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want ErrInvalidOption and %q", what, err, c.text)
		}
		if locker != nil {
			_ = locker.Close(t.Context())
		}
	}
	for _, client := range []redis.UniversalClient{cluster, ring, failover} {
		_ = client.Close()
	}
}

const three = "redlock+redis://:s3cret@h1,h2:1,h3"

var refused = map[string]struct{ url, text string }{
	"no scheme":             {"h1,h2,h3", "the scheme is not known: write one of redlock+redis:// "},
	"one Redis":             {"redis://h1", "the scheme is not known"},
	"a socket":              {"redlock+unix:///tmp/s3cret", "the scheme is not known"},
	"two nodes":             {"redlock+redis://:s3cret@h1,h2", "redlock needs 3 nodes or more to survive the loss of one, and has 2"},
	"four nodes":            {"redlock+redis://h1,h2,h3,h4", "use an odd number of nodes"},
	"no nodes":              {"redlock+redis://", "node 1 of 1 has no host"},
	"an empty node":         {"redlock+redis://h1,,h3", "node 2 of 3 has no host: write host:port for each node"},
	"a node without host":   {"redlock+redis://h1,:6379,h3", "node 2 of 3 has no host"},
	"a user without host":   {"redlock+redis://u:s3cret@,h2,h3", "node 1 of 3 has no host"},
	"a node twice":          {"redlock+redis://h1,h2,h1:6379", "the nodes 1 and 3 have one address, h1:6379"},
	"comma in a password":   {"redlock+redis://u:12,s3cret@h1,h2", "write a comma in a password as %2C"},
	"comma, second node":    {"redlock+redis://u:p@h1,u:12,s3cret@h2", "node 2 of 3 has no user and password"},
	"slash in a password":   {"redlock+redis://u:12/s3cret@h1,h2,h3", "percent-encode the special characters"},
	"question mark":         {"redlock+redis://u:12?s3cret@h1,h2,h3", "percent-encode the special characters"},
	"bad port":              {"redlock+redis://:s3cret@h1,h2:port,h3", "lock URL: node 2 of 3: the host has a port that is no number"},
	"unknown parameter":     {three + "?pool=1", "lock URL: node 1 of 3: redis: unexpected option: pool"},
	"a database of words":   {three + "/s3cret", "the database must be a number from 0"},
	"ttl":                   {three + "?ttl=1s", "ttl is a parameter of lockurl.Open alone"},
	"delay without unit":    {three + "?restart_delay=s3", "restart_delay is not a duration with a unit"},
	"delay of 0":            {three + "?restart_delay=0s", "restart_delay is 0, which would mean the default"},
	"no delay":              {three + "?restart_delay=", "restart_delay is not a duration"},
	"two delays":            {three + "?restart_delay=1s&restart_delay=1s", "restart_delay occurs more than once"},
	"delay in a password":   {"redlock+redis://u:12?restart_delay=1s&s3cret@h1,h2,h3", "percent-encode the special characters"},
	"TLS of a plain scheme": {three + "?skip_verify=true", "skip_verify needs TLS"},
}

func TestOpenDriver_refusesBadURLs(t *testing.T) {
	for name, bad := range refused {
		d, err := redlock.OpenDriver(bad.url)
		if d != nil {
			t.Errorf("%s: accepted", name)
			_ = d.Close()
			continue
		}
		if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "lock URL: ") || !strings.Contains(err.Error(), bad.text) {
			t.Errorf("%s: the error is %v, want ErrInvalidOption and the text %q", name, err, bad.text)
			continue
		}
		for _, secret := range []string{"s3", "cret", "12,", "12?", "12/", "12#"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the text shows a part of the password: %v", name, err)
			}
		}
	}
}

func TestParseURL_eachNodeHasItsOwnUser(t *testing.T) {
	clients, delay, err := redlock.ParseURL(
		"redlock+valkeys://a:p%2Cq%40r@h1:7000,b:s@[::1]:7001,:t@h3,h4,h5:7004/2?pool_size=3&restart_delay=1m30s&client_name=a+b&skip_verify=true")
	if err != nil || delay != 90*time.Second || len(clients) != 5 {
		t.Fatalf("%d clients, %s, %v", len(clients), delay, err)
	}
	for i, want := range []redis.Options{
		{Addr: "h1:7000", Username: "a", Password: "p,q@r"}, {Addr: "[::1]:7001", Username: "b", Password: "s"},
		{Addr: "h3:6379", Password: "t"}, {Addr: "h4:6379"}, {Addr: "h5:7004"},
	} {
		o := clients[i].(*redis.Client).Options()
		if o.Addr != want.Addr || o.Username != want.Username || o.Password != want.Password || o.DB != 2 || o.PoolSize != 3 ||
			o.ClientName != "a b" || o.TLSConfig == nil {
			t.Errorf("node %d has %+v, want %+v", i+1, o, want)
		}
		if err := clients[i].Close(); err != nil {
			t.Error(err)
		}
	}
	clients, delay, err = redlock.ParseURL(three + "?restart_delay=-1s")
	if err != nil || delay != -time.Second || clients[0].(*redis.Client).Options().TLSConfig != nil {
		t.Errorf("%s, %v", delay, err)
	}
	for _, client := range clients {
		_ = client.Close()
	}
}

// The driver closes the clients of its URL, and the caller those of New.
func TestClose_clients(t *testing.T) {
	clients := clientsOf(t, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
	d, err := redlock.NewDriver(clients, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := clients[0].Ping(context.Background()).Err(); errors.Is(err, redis.ErrClosed) {
		t.Error("the driver has closed the client of its caller")
	}
	d, err = redlock.OpenDriver(three)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil { // goleak checks that the clients are closed
		t.Error(err)
	}
}
