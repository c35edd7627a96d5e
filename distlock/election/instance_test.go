package election_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/election"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/history"
)

// config is what a process of TestFaults_ownServers needs.
type config struct {
	Lock   string // URL of the lock service, through the network of the process
	Store  string // URL of the store that compares tokens, past that network
	Holder string
	TTL    time.Duration
}

// said is what a process reports about a term.
type said struct {
	What    string
	Token   int64
	At      int64 // monotonic, read before the context is looked at and before an act is sent
	Done    int64 // of an act: the store had answered
	Running bool  // of a step: the context of lead had not ended
	Refused bool  // of an act: the store had seen a higher token
}

const (
	sayStep = "step"
	sayAct  = "act"
	sayLeft = "left" // lead returns

	stepEvery = 5 * time.Millisecond
	actEvery  = 20 * time.Millisecond
	// insists is how often a lost leader acts after the store has refused it.
	insists = 5
	// rests is the time from a resignation to the next campaign of the process.
	rests = 300 * time.Millisecond
)

// runInstance campaigns until ctx ends. The parent's word makes the leader resign.
func runInstance(ctx context.Context, parent *child.Line, c config) error {
	locker, err := lockurl.Open(ctx, c.Lock, &distlock.Options{
		Namespace: "election", TTL: c.TTL, Holder: c.Holder, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer locker.Close(context.Background())
	act, err := openStore(ctx, c.Store)
	if err != nil {
		return err
	}
	resign := make(chan struct{})
	go func() {
		for word := ""; parent.Receive(&word) == nil; {
			resign <- struct{}{}
		}
	}()
	for {
		err := election.Run(ctx, locker, name, func(ctx context.Context) error {
			lease, _ := locker.FromContext(ctx, name)
			return lead(ctx, lease.Fence(), parent, act, resign)
		})
		if err != nil {
			return err
		}
		time.Sleep(rests)
	}
}

// lead shows at each step whether its context has ended, and acts beside that. After a loss, lead
// acts on until the store has refused several acts.
func lead(ctx context.Context, token int64, parent *child.Line,
	act func(token int64, n int) (refused bool, err error), resign <-chan struct{}) error {
	ended := make(chan struct{})
	acted := make(chan error, 1)
	go func() { acted <- actUntil(ctx, ended, token, parent, act) }()
	leave := func(err error) error {
		close(ended)
		err = errors.Join(err, <-acted)
		return errors.Join(err, parent.Send(said{What: sayLeft, Token: token, At: history.Now()}))
	}
	steps := time.NewTicker(stepEvery)
	defer steps.Stop()
	for {
		s := said{What: sayStep, Token: token, At: history.Now()}
		s.Running = ctx.Err() == nil
		if err := parent.Send(s); err != nil {
			return leave(err)
		}
		select {
		case <-steps.C:
		case <-resign:
			return leave(nil)
		case err := <-acted:
			acted <- nil
			return leave(err)
		}
	}
}

// actUntil returns an error only if the store failed otherwise than by a refusal.
func actUntil(ctx context.Context, ended <-chan struct{}, token int64, parent *child.Line,
	act func(token int64, n int) (refused bool, err error)) error {
	next := time.NewTicker(actEvery)
	defer next.Stop()
	for n, refusals := 1, 0; refusals < insists; n++ {
		s := said{What: sayAct, Token: token, At: history.Now()}
		var err error
		if s.Refused, err = act(token, n); err != nil {
			return fmt.Errorf("act %d: %w", n, err)
		}
		if s.Refused {
			refusals++
		}
		s.Done = history.Now()
		if err := parent.Send(s); err != nil {
			return err
		}
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), distlock.ErrLost) {
			return nil // the process ends
		}
		select {
		case <-next.C:
		case <-ended:
			return nil
		}
	}
	return nil
}

// openStore opens a store that compares tokens and knows nothing of leases: a table with a
// conditional update, or a Stream, whose entries have rising IDs.
func openStore(ctx context.Context, url string) (act func(token int64, n int) (refused bool, err error), err error) {
	if strings.HasPrefix(url, "postgres") {
		db, err := pgxpool.New(ctx, url)
		return func(token int64, _ int) (bool, error) {
			tag, err := db.Exec(context.Background(), `UPDATE acts SET fence = $1, n = n + 1 WHERE fence <= $1`, token)
			return tag.RowsAffected() == 0, err
		}, err
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opts.ReadTimeout, opts.MaxRetries = -1, -1 // a pause is no failure of the store
	client := redis.NewClient(opts)
	return func(token int64, n int) (bool, error) {
		err := client.XAdd(context.Background(), &redis.XAddArgs{
			Stream: "acts", MaxLen: 100, Approx: true, ID: fmt.Sprintf("%d-%d", token, n), Values: []string{"n", fmt.Sprint(n)},
		}).Err()
		if err != nil && strings.Contains(err.Error(), "equal or smaller") {
			return true, nil
		}
		return false, err
	}, nil
}
