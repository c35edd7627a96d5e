package faultwork

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the SQL service
	"google.golang.org/adk/v2/agent"
	adk "google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"google.golang.org/genai"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/belugalock/belugalock/adksession"
	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/campaign/instance"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const app = "app"

// runner is a Runner and its sessions.
type runner struct {
	config   instance.Config
	run      running
	sessions session.Service
	migrate  func(context.Context) error
	close    func() error
}

// running is the method Run of ADK's Runner, and of that of adksession.
type running func(ctx context.Context, user, name string, question *genai.Content, cfg agent.RunConfig,
	opts ...adk.RunOption) iter.Seq2[*session.Event, error]

// open makes a Runner, as an application does.
func open(ctx context.Context, c instance.Config) (*runner, error) {
	of, err := writer(c.TTL)
	if err != nil {
		return nil, err
	}
	r, cfg := &runner{config: c}, adk.Config{AppName: app, Agent: of, AutoCreateSession: true}
	var service *adksession.Service
	var locker *distlock.Locker
	if c.Broken == instance.SQL {
		err = r.openSQL()
	} else if service, locker, err = r.openService(ctx); err == nil {
		r.sessions = service
	}
	if err != nil {
		return nil, err
	}
	if c.Broken == "" {
		by, err := service.NewRunner(cfg)
		if err == nil {
			r.run = by.Run
		}
		return r, err
	}
	if cfg.SessionService = r.sessions; service != nil {
		cfg.SessionService = broken{service, c.Broken}
	}
	by, err := adk.New(cfg)
	if err != nil {
		return nil, err
	}
	if r.run = by.Run; service != nil {
		r.run = locked(locker, by.Run)
	}
	return r, nil
}

func (r *runner) openService(ctx context.Context) (service *adksession.Service, locker *distlock.Locker, err error) {
	lock := distlock.Options{TTL: r.config.TTL}
	// Less than the TTL, so that clients of a killed process's sessions ask again.
	opts := &adksession.Options{Wait: r.config.TTL / 2}
	r.migrate = func(context.Context) error { return nil }
	if !strings.HasPrefix(r.config.URL, "postgres:") {
		client, err := redislock.ParseURL(r.config.URL)
		if err != nil {
			return nil, nil, err
		}
		if locker, err = redislock.New(client, &lock); err != nil {
			return nil, nil, err
		}
		r.close = func() error { return errors.Join(locker.Close(context.Background()), client.Close()) }
		service, err = adksession.NewRedis(client, locker, opts)
		return service, locker, err
	}
	pool, err := pgxpool.New(ctx, r.config.URL+"&pool_max_conns=8")
	if err != nil {
		return nil, nil, err
	}
	servers.Within(10*time.Second, func() bool { // a busy machine may not answer at once
		locker, err = pglock.New(ctx, pool, &pglock.Options{Options: lock})
		return !errors.Is(err, distlock.ErrUnavailable)
	})
	if err != nil {
		return nil, nil, err
	}
	r.migrate = func(ctx context.Context) error { return adksession.Migrate(ctx, pool, nil) }
	r.close = func() error { defer pool.Close(); return locker.Close(context.Background()) }
	service, err = adksession.NewPostgres(pool, locker, opts)
	return service, locker, err
}

// openSQL makes ADK's own service.
func (r *runner) openSQL() error {
	pool, err := sql.Open("pgx", r.config.URL)
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(8)
	r.sessions, err = database.NewSessionService(postgres.New(postgres.Config{Conn: pool}),
		&gorm.Config{Logger: logger.Discard}) // the default one writes to stdout, where the replies go
	r.migrate, r.close = func(context.Context) error { return database.AutoMigrate(r.sessions) }, pool.Close
	return err
}
