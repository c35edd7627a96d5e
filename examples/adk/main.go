// ADK is an agent of ADK for Go behind the REST API of ADK: a balancer in front of two instances, each a
// process, that share the sessions. See usage.txt and README.md.
package main

import (
	"context"
	_ "embed"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/server/adkrest"

	"github.com/belugalock/belugalock/adksession"
	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/examples/internal/instances"
)

//go:embed usage.txt
var usage string

func main() { instances.Main(instances.Program{Usage: usage, Open: open, Tour: tour}) }

// open makes an instance: the REST API of ADK, whose runs hold the lock of their session.
func open(s instances.Settings) (http.Handler, func(context.Context) error, error) {
	sessions, locker, err := connect(s)
	assistant, err2 := newAgent(s.Delay)
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, err
	}
	rest, err := adkrest.NewServer(adkrest.ServerConfig{
		SessionService:  sessions,
		AgentLoader:     agent.NewSingleLoader(assistant),
		SSEWriteTimeout: 10 * time.Minute, // of a whole stream
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", sessions.LockREST(rest))
	stop := func(w http.ResponseWriter, r *http.Request) {
		err := sessions.Stop(r.Context(), r.PathValue("app"), r.PathValue("user"), r.PathValue("session"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
	mux.HandleFunc("POST /apps/{app}/users/{user}/sessions/{session}/stop", stop)
	// ⚑ Leave this out. It shows what becomes of messages without the lock.
	mux.Handle("/unlocked/", http.StripPrefix("/unlocked", rest))
	return mux, locker.Close, nil
}

// connect makes the sessions and the locks, on one server.
func connect(s instances.Settings) (*adksession.Service, *distlock.Locker, error) {
	ctx := context.Background()
	lock := distlock.Options{TTL: s.TTL, Observer: s.Observer, Interruptible: true} // stops at once
	locker, err := lockurl.Open(ctx, s.Server, &lock)
	if err != nil {
		return nil, nil, err
	}
	if strings.HasPrefix(s.Server, "postgres") {
		pool, err := pgxpool.New(ctx, s.Server)
		if err != nil {
			return nil, nil, err
		}
		err = errors.Join(pglock.Migrate(ctx, pool, nil), adksession.Migrate(ctx, pool, nil))
		sessions, err2 := adksession.NewPostgres(pool, locker, nil)
		return sessions, locker, errors.Join(err, err2)
	}
	client, err := redislock.ParseURL(s.Server)
	if err != nil {
		return nil, nil, err
	}
	sessions, err := adksession.NewRedis(client, locker, nil)
	return sessions, locker, err
}
