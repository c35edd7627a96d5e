// Package adksession keeps the sessions of ADK for Go in Redis or PostgreSQL, under the lock of a session:
//
//	svc, err := adksession.NewRedis(client, locker, nil)
//	r, err := svc.NewRunner(runner.Config{AppName: "app", Agent: root})
//	for event, err := range r.Run(ctx, user, session, message, agent.RunConfig{}) { … }
//
// A run holds the lock of its session, so its events stand together. A session refuses events of a handle that
// has missed one, and of a lease that a later one has replaced.
package adksession
