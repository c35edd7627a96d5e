package adksession_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/plugin"
	"google.golang.org/adk/v2/runner"
	adka2a "google.golang.org/adk/v2/server/adka2a/v2"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/adksession"
	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/distlock/redislock"
)

var (
	root agent.Agent  // of the application
	rest http.Handler // of adkrest.NewServer, with the Service
)

func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locker, err := redislock.New(client, nil)
	if err != nil {
		panic(err)
	}
	svc, err := adksession.NewRedis(client, locker, nil)
	if err != nil {
		panic(err)
	}
	r, err := svc.NewRunner(runner.Config{AppName: "shop", Agent: root, AutoCreateSession: true})
	if err != nil {
		panic(err)
	}
	for event, err := range r.Run(ctx, "ada", "order-7", genai.NewContentFromText("Where is it?", genai.RoleUser), agent.RunConfig{}) {
		if errors.Is(err, distlock.ErrNotAcquired) {
			fmt.Println("another run answers: retry later")
			return
		}
		fmt.Println(event, err)
	}
}

// The database has the locks and the sessions.
func ExampleNewPostgres() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://agent@localhost/shop")
	if err != nil {
		panic(err)
	}
	// Once for each version.
	if err := errors.Join(pglock.Migrate(ctx, pool, nil), adksession.Migrate(ctx, pool, nil)); err != nil {
		panic(err)
	}
	locker, err := pglock.New(ctx, pool, nil)
	if err != nil {
		panic(err)
	}
	svc, err := adksession.NewPostgres(pool, locker, &adksession.Options{IdleTTL: 90 * 24 * time.Hour})
	fmt.Println(svc, err)
}

func ExampleService_LockREST() {
	var svc *adksession.Service
	http.Handle("/api/", http.StripPrefix("/api", svc.LockREST(rest)))
}

// runs has the Run that an Executor of A2A wants.
type runs struct{ *adksession.Runner }

func (r runs) Run(ctx context.Context, user, sessionID string, msg *genai.Content,
	cfg agent.RunConfig) iter.Seq2[*session.Event, error] {
	return r.Runner.Run(ctx, user, sessionID, msg, cfg)
}

func ExampleService_NewRunner_a2a() {
	var svc *adksession.Service
	executor := adka2a.NewExecutor(adka2a.ExecutorConfig{
		RunnerProvider: func(_ context.Context, _ *a2asrv.ExecutorContext, p *plugin.Plugin) (
			adka2a.RunnerConfig, adka2a.Runner, error) {
			plugins := runner.PluginConfig{Plugins: []*plugin.Plugin{p}}
			r, err := svc.NewRunner(runner.Config{AppName: "shop", Agent: root, PluginConfig: plugins})
			return adka2a.RunnerConfig{AppName: "shop", Agent: root, SessionService: svc}, runs{r}, err
		},
	})
	fmt.Println(executor)
}

// A webhook adds an event. It waits for a run of the session.
func ExampleService_Append() {
	var svc *adksession.Service
	ctx := context.Background()
	event := session.NewEvent(ctx, "webhook-11")
	event.Author = "carrier"
	event.Actions.StateDelta["delivered"] = true
	if err := svc.Append(ctx, "shop", "ada", "order-7", event); err != nil {
		fmt.Println(err)
	}
}

// A Stop button works at any instance.
func ExampleService_Stop() {
	var svc *adksession.Service
	if err := svc.Stop(context.Background(), "shop", "ada", "order-7"); err != nil {
		fmt.Println("not stopped yet: press again", err)
	}
}

// ADK calls these methods. Applications may, too.
func ExampleService_AppendEvent() {
	var svc *adksession.Service
	ctx := context.Background()
	created, err := svc.Create(ctx, &session.CreateRequest{AppName: "shop", UserID: "ada", SessionID: "order-8"})
	if errors.Is(err, adksession.ErrExists) {
		var found *session.GetResponse
		found, err = svc.Get(ctx, &session.GetRequest{AppName: "shop", UserID: "ada", SessionID: "order-8"})
		created = (*session.CreateResponse)(found)
	}
	if err == nil {
		err = svc.AppendEvent(ctx, created.Session, session.NewEvent(ctx, "note"))
	}
	if errors.Is(err, adksession.ErrStale) {
		fmt.Println("another append came: get the session again")
	}
	list, err := svc.List(ctx, &session.ListRequest{AppName: "shop", UserID: "ada"})
	fmt.Println(list, err)
	err = svc.Delete(ctx, &session.DeleteRequest{AppName: "shop", UserID: "ada", SessionID: "order-8"})
	fmt.Println(err)
}
