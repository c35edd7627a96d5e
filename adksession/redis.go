package adksession

import (
	"context"
	"embed"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/rediskeys"
	"github.com/belugalock/belugalock/internal/rediskinds"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

//go:embed lua/*.lua
var files embed.FS

var script = redisconn.NewScript("local DONE = 0\n" + redisconn.CallsLua + redisconn.Source(files, "session"))

// NewRedis makes a Service for the Redis of client, with the locks of locker. The caller closes both.
// NewRedis does no I/O. It returns distlock.ErrInvalidOption for a nil client or Locker, for a Locker of
// one process, for options out of range, and for a client that reads from replicas.
//
// The Service has connections of its own, with the options of client, see redislock.New. They end with
// the process. In a Cluster, all sessions of an app are in one slot.
func NewRedis(client redis.UniversalClient, locker *distlock.Locker, opts *Options) (*Service, error) {
	locks, err := redislock.NewDriver(client) // its connections need no Close
	if err != nil {
		return nil, err
	}
	if err := redisconn.RefuseReplicas(client); err != nil {
		return nil, fmt.Errorf("%w: %w", distlock.ErrInvalidOption, err)
	}
	return newService(locker, opts, func(keep storedriver.Retention) store {
		return &redisStore{locks.(redisconn.Locks).Transport(), keep}
	})
}

// redisStore is a store. Its script has the rules.
type redisStore struct {
	redis *redisconn.Transport
	keep  storedriver.Retention
}

// call returns the keys and arguments of the script.
func (r *redisStore) call(q request) (keys []string, args []any) {
	p, member := rediskeys.Prefix(r.keep.Namespace, q.app), q.member()
	// ⚑ A key that is not declared seems missing while its slot moves.
	keys = []string{p + "s:" + member, p + "e:" + member, p + "a", p + "u:" + url.QueryEscape(q.user), p + "i", p + "x"}
	args = []any{string(q.operation), q.token, r.keep.IdleTTL.Milliseconds(), member,
		q.op, q.last, q.record(), q.recent, q.since}
	for key, value := range q.state {
		args = append(args, key, value)
	}
	return keys, args
}

func (r *redisStore) do(ctx context.Context, q request) (reply, error) {
	if q.name == "" {
		return r.list(ctx, q)
	}
	keys, args := r.call(q)
	return r.parse(script.Once(ctx, r.redis, keys, args...))
}

func (r *redisStore) explain(err error) error {
	return rediskinds.Explain(r.redis.Client(), "adksession", err)
}

var errReply = redisconn.UnknownReply("adksession")

func (r *redisStore) parse(cmd *redis.Cmd) (a reply, err error) {
	words, err := cmd.Slice()
	if err != nil {
		return a, r.explain(err)
	}
	rest := &redisconn.Reply{Parts: words, Unknown: errReply}
	a.outcome, a.mark = outcome(rest.Number()), rest.Number()
	if a.updated = time.UnixMicro(a.mark); len(rest.Parts) > 0 {
		a.op, a.n, a.state = rest.Text(), rest.Number(), make(state)
		for field := range slices.Chunk(slices.Concat(rest.Texts(), rest.Texts(), rest.Texts()), 2) {
			if key, ok := strings.CutPrefix(field[0], "k"); ok && len(field) == 2 {
				a.state[key] = field[1]
			}
		}
		a.records = rest.Texts()
	}
	return a, rest.End()
}

// listed is how many sessions a page of list has.
const listed = 100

func (r *redisStore) list(ctx context.Context, q request) (all reply, err error) {
	index, from, to := rediskeys.Prefix(r.keep.Namespace, q.app)+"i", "-", "+"
	if q.user != "" {
		from, to = "["+url.QueryEscape(q.user)+"/", "("+url.QueryEscape(q.user)+"0" // 0 follows the slash
	}
	names := redis.NewStringSliceCmd(ctx, "zrangebylex", index, from, to)
	if err := r.redis.Do(ctx, index, names); err != nil {
		return reply{}, r.explain(err)
	}
	for page := range slices.Chunk(names.Val(), listed) {
		ids, keys, args := make([]id, len(page)), make([][]string, len(page)), make([][]any, len(page))
		for i, member := range page {
			user, name, _ := strings.Cut(member, "/")
			ids[i].app = q.app
			ids[i].user, _ = url.QueryUnescape(user) // as member has escaped them
			ids[i].name, _ = url.QueryUnescape(name)
			keys[i], args[i] = r.call(request{operation: opGet, id: ids[i]})
		}
		for i, cmd := range script.Each(ctx, r.redis, keys, args) {
			a, err := r.parse(cmd)
			if err != nil {
				return reply{}, err
			}
			if a.id = ids[i]; a.outcome == done { // else expired, or deleted since
				all.found = append(all.found, a)
			}
		}
	}
	return all, nil
}
