// Package faultnet puts a network between a client and its servers that fails when a test says so.
// A Proxy stands in front of one server. Net has one for each server that the client dials, as in a
// Cluster:
//
//	network := faultnet.NewNet(t)
//	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: network.Dial})
//	network.Only(cluster.MasterOf("key").Addr()).Cut()
//
// A client can be cut off, slow or refused. It can miss the reply to an executed command
// (DropReplies), and its command can arrive late (HoldRequests). Dialer counts reads and writes, so
// that a test can fail each of them in turn.
//
// The proxies find the end of each request and reply of RESP. Of other protocols, a request or
// reply is the result of one read.
package faultnet
