package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

const (
	sample = 20             // sessions to compare
	pages  = 20             // of their names to read: each node of a Cluster has its own
	kept   = 23 * time.Hour // a lock service keeps the last token of a lock for 24 hours
)

// namespaces compares sessions with their locks. The token of the last exchange was granted by the lock of
// the session's name, so the lock service knows it, or a higher one.
func namespaces(ctx context.Context, lock, store target) Finding {
	ctx, cancel := context.WithTimeout(ctx, 2*answerLimit)
	defer cancel()
	unknown := func(err error) Finding {
		return result(Note, err.Error(), "Sessions and locks are not compared.",
			"Run lockctl doctor again when both answer, as a user who may read both.")
	}
	written, any, err := lastWrites(ctx, store)
	if err != nil {
		return unknown(err)
	}
	ask, done, err := tokensOf(ctx, lock)
	if err != nil {
		return unknown(err)
	}
	defer done()
	if !any {
		return result(Note, fmt.Sprintf("the namespace %q of the store has no session", store.namespace),
			"No program has stored an exchange there, or the namespace is mistyped. Sessions and locks are not compared.",
			"Compare the parameter namespace of --store with that of the programs.")
	}
	wrong := 0
	for session, token := range written {
		granted, err := ask(session)
		if err != nil {
			return unknown(err)
		}
		if granted < token {
			wrong++
		}
	}
	if wrong > 0 {
		return result(Problem, fmt.Sprintf("%d of %d sessions have an exchange with a token that no lock in the namespace %q has granted",
			wrong, len(written), lock.namespace),
			"Programs write these sessions under locks of another namespace or server, so two of them may write at once. "+
				"Or the lock service has lost its data.",
			"Compare the lock URLs of all programs, and their namespace, with --url.")
	}
	return ok("the locks of %d sessions are in the namespace %q", len(written), lock.namespace)
}

// lastWrites returns the tokens of the last exchanges of some sessions. any is false if the namespace has no
// session.
func lastWrites(ctx context.Context, store target) (written map[string]int64, any bool, err error) {
	sessions, done, err := OpenSessions(store.url, storedriver.Retention{Namespace: store.namespace})
	if err != nil {
		return nil, false, err
	}
	defer done()
	written = map[string]int64{}
	after := ""
	for range pages {
		names, next, err := sessions.Sessions(ctx, after)
		if err != nil {
			return nil, false, err
		}
		any = any || len(names) > 0
		for _, name := range names[:min(len(names), sample-len(written))] {
			page, err := sessions.Read(ctx, storedriver.Read{Session: name, Backward: true, Limit: 1})
			if err != nil {
				return nil, false, err
			}
			if len(page.Entries) > 0 && time.Since(time.UnixMicro(page.Entries[0].Place.Fence)) < kept {
				written[name] = page.Entries[0].Place.Fence
			}
		}
		if after = next; next == "" || len(written) == sample {
			break
		}
	}
	return written, any || after != "", nil // a page may be empty, and have a next page
}

// OpenSessions opens the store of a URL without parameters of a Locker. It sends nothing.
func OpenSessions(url string, keep storedriver.Retention) (sessions storedriver.Driver, done func(), err error) {
	locks, err := lockurl.OpenDriver(url)
	if err != nil {
		return nil, nil, err
	}
	switch backend := locks.Capabilities().Backend; backend {
	case "redis":
		sessions, err = redisstore.NewColocatedDriver(locks, &keep)
	case "postgres":
		sessions, err = pgstore.NewColocatedDriver(locks, &keep)
	default:
		err = fmt.Errorf("%w: the backend %q keeps no sessions: give their Redis or PostgreSQL with --store",
			distlock.ErrInvalidOption, backend)
	}
	if err != nil {
		_ = locks.Close()
		return nil, nil, err
	}
	return sessions, func() { _ = locks.Close() }, nil
}

// connect opens a connection to a PostgreSQL, and returns the schema of its URL.
func connect(ctx context.Context, rawURL string) (conn *pgx.Conn, schema string, err error) {
	config, schema, err := postgres.ParseURL(rawURL)
	if err != nil {
		return nil, "", err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err = pgx.ConnectConfig(ctx, config.ConnConfig)
	return conn, cmp.Or(schema, postgres.DefaultSchema), err
}

// tokensOf returns a function that asks for the highest token that a lock has granted, 0 if none.
func tokensOf(ctx context.Context, lock target) (ask func(key string) (int64, error), done func(), err error) {
	if isPostgres(lock.url) {
		conn, schema, err := connect(ctx, lock.url)
		if err != nil {
			return nil, nil, err
		}
		table := pgx.Identifier{schema, "lease"}.Sanitize()
		return func(key string) (token int64, err error) {
			err = conn.QueryRow(ctx, "SELECT coalesce(max(block_end), 0) FROM "+table+" WHERE namespace = $1 AND key = $2",
				lock.namespace, key).Scan(&token)
			return token, err
		}, func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
	}
	clients, _, err := redlock.ParseURL(lock.url)
	if err != nil {
		var client redis.UniversalClient
		if client, err = redislock.ParseURL(lock.url); err != nil {
			return nil, nil, err
		}
		clients = []redis.UniversalClient{client}
	}
	ask = func(key string) (token int64, err error) {
		name := lock.namespace + ":{" + strings.NewReplacer("%", "%25", "}", "%7D").Replace(key) + "}:lock"
		failures := 0
		for _, client := range clients {
			record, failed := client.Get(ctx, name).Result()
			if failed != nil && !errors.Is(failed, redis.Nil) {
				failures, err = failures+1, failed
			} else if len(record) >= 100 { // both formats of a record have the last token here
				last, _ := strconv.ParseInt(record[84:100], 10, 64)
				token = max(token, last)
			}
		}
		// A majority of the nodes knows the highest token.
		if 2*failures < len(clients) {
			err = nil
		}
		return token, err
	}
	return ask, func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}, nil
}
