// Package faultnet puts a network between a client and its servers that fails when a test says so.
//
// A Proxy stands in front of one server. Its client is given Addr instead of the server's address:
//
//	proxy := faultnet.New(t, server.Addr())
//	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
//	// ... acquire a lock ...
//	proxy.Cut() // its holder is on its own now
//
// Clients of a Sentinel or Cluster connect to addresses that the servers tell them. Net gives each
// its proxy, by the client's dialer:
//
//	network := faultnet.NewNet(t)
//	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: network.Dial})
//	network.Only(cluster.MasterOf("key").Addr()).Cut()
//
// Besides being cut off, slow or refused, a client can be made to miss the reply to a command that
// was executed (DropReplies), and a command can arrive when its client has long given up
// (HoldRequests). Dialer counts the reads and writes of connections, so that a test can fail or
// cancel each of them in turn.
//
// The proxies understand as much of RESP, the protocol of Redis, as tells them where a request or
// reply ends. What is not RESP passes as well; there, a request or reply is what was read at once.
//
// Everything ends in the test's cleanup, also the goroutines.
package faultnet
