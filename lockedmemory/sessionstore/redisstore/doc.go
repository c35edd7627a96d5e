// Package redisstore keeps sessions in Redis: one node, Sentinel or Cluster, by the type of go-redis's client.
package redisstore
