// Package adksession keeps the sessions of ADK for Go in Redis or PostgreSQL, under the lock of each session:
//
//	svc, err := adksession.NewRedis(client, locker, nil)
//	r, err := svc.NewRunner(runner.Config{AppName: "app", Agent: root})
//	for event, err := range r.Run(ctx, user, session, message, agent.RunConfig{}) { … }
//
// A run holds the lock of its session, so its events stand together. A session refuses events of a handle
// that has missed one, and of a lease that a later one has replaced. A stored event and its changes of
// all states are one step. Of two writers of one key, the last acknowledged one wins.
//
// [Service.Stop] ends a run in any process. docs/howto/adk.md has a program, servers over HTTP, and the
// limits.
//
// # Rights
//
// An ACL user needs ~<namespace>:* of the Service, and +evalsha +eval +time +exists +hmget +hgetall +hset +llen
// +lrange +rpush +rpop +unlink +pexpireat +persist +zadd +zrem +zrangebylex +zrangebyscore; with one client for both, also
// what package redislock lists for the lock.
//
// In PostgreSQL 14 or newer, [Migrate] installs the tables once for each version. A program needs USAGE on
// the schema and EXECUTE on its functions, and may go through PgBouncer in transaction mode.
package adksession
