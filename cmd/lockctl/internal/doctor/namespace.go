package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

const (
	sample = 20             // sessions to compare
	pages  = 20             // of their names to read: each node of a Cluster has its own
	kept   = 23 * time.Hour // a lock service keeps the last token of a lock for 24 hours
)

// namespaces compares sessions with their locks. The token of the last exchange was granted by the lock of
// the session's name, so the lock service knows it, or a higher one.
func namespaces(ctx context.Context, lock target, sessions storedriver.Driver) Finding {
	ctx, cancel := context.WithTimeout(ctx, 2*answerLimit)
	defer cancel()
	written, some, err := lastWrites(ctx, sessions)
	var granted map[string]int64
	if err == nil {
		granted, err = tokens(ctx, lock, slices.Collect(maps.Keys(written)))
	}
	wrong := 0
	for session, token := range written {
		if granted[session] < token {
			wrong++
		}
	}
	switch {
	case err != nil:
		return result(Note, err.Error(), "Sessions and locks are not compared.",
			"Run lockctl doctor again when both answer, as a user who may read both.")
	case !some:
		return result(Note,
			fmt.Sprintf("the namespace %q of the store has no session", sessions.Retention().Namespace),
			"No program has stored an exchange there, or the namespace is mistyped. Sessions and locks are not compared.",
			"Compare the parameter namespace of --store with that of the programs.")
	case wrong > 0:
		return result(Problem,
			fmt.Sprintf("%d of %d sessions have an exchange with a token that no lock in the namespace %q has granted",
				wrong, len(written), lock.namespace),
			"Programs write these sessions under locks of another namespace or server, so two of them may write at once. "+
				"Or the lock service has lost its data.", "Compare the lock URLs of all programs, and their namespace, with --url.")
	}
	return ok("the locks of %d sessions are in the namespace %q", len(written), lock.namespace)
}

// lastWrites returns the tokens of the last exchanges of some sessions. some is false if the namespace has no
// session.
func lastWrites(ctx context.Context, sessions storedriver.Driver) (written map[string]int64, some bool, err error) {
	written = map[string]int64{}
	after := ""
	for range pages {
		names, next, err := sessions.Sessions(ctx, after)
		if err != nil {
			return nil, false, err
		}
		some = some || len(names) > 0
		for _, name := range names[:min(len(names), sample-len(written))] {
			page, err := sessions.Read(ctx, storedriver.Read{Access: storedriver.Access{Session: name}, Backward: true, Limit: 1})
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
	return written, some || after != "", nil // a page may be empty, and have a next page
}

// tokens returns the highest token that each lock may have granted.
func tokens(ctx context.Context, lock target, keys []string) (granted map[string]int64, err error) {
	if hasScheme(lock.url, postgres.Schemes) {
		return tokensOfPostgres(ctx, lock, keys)
	}
	var clients []redis.UniversalClient
	if hasScheme(lock.url, redlock.Schemes) {
		clients, _, err = redlock.ParseURL(lock.url)
	} else {
		clients = make([]redis.UniversalClient, 1)
		clients[0], err = redislock.ParseURL(lock.url)
	}
	if err != nil {
		return nil, err
	}
	for _, client := range clients {
		defer client.Close()
	}
	granted = map[string]int64{}
	for _, client := range clients {
		for _, key := range keys {
			name := lock.namespace + ":{" + strings.NewReplacer("%", "%25", "}", "%7D").Replace(key) + "}:lock"
			record, err := client.Get(ctx, name).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return nil, err
			}
			if len(record) >= 84 { // both formats of a record have the first token of the last grant here
				token, _ := strconv.ParseInt(record[68:84], 10, 64)
				granted[key] = max(granted[key], token+lockdriver.FenceBlock)
			}
		}
	}
	return granted, nil
}

func tokensOfPostgres(ctx context.Context, lock target, keys []string) (granted map[string]int64, err error) {
	conn, schema, err := connect(ctx, lock)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	table := pgx.Identifier{schema, "lease"}.Sanitize()
	rows, _ := conn.Query(ctx, "SELECT key, block_end FROM "+table+" WHERE namespace = $1 AND key = ANY($2)", lock.namespace, keys)
	var key string
	var token int64
	granted = map[string]int64{}
	_, err = pgx.ForEachRow(rows, []any{&key, &token}, func() error { granted[key] = token; return nil })
	return granted, err
}
