package adksession

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
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

func script(names ...string) *redisconn.Script {
	return redisconn.NewScript(redisconn.Source(files, "access") + redisconn.CallsLua + redisconn.Source(files, names...))
}

var (
	createScript = script("session", "create")
	getScript    = script("session", "get")
	appendScript = script("session", "append")
	deleteScript = script("delete")
)

// NewRedis makes a Service for the Redis of client, 7.0 or later, with the locks of locker. The caller closes both. NewRedis
// does no I/O. It returns distlock.ErrInvalidOption for a nil client or Locker, for a Locker of one process, for options
// out of range, and for a client that reads from replicas.
//
// The Service has connections of its own, with the options of client, see redislock.New. They end with the process. In a
// Cluster, all sessions of an app are in one slot.
func NewRedis(client redis.UniversalClient, locker *distlock.Locker, opts *Options) (*Service, error) {
	return newService(locker, opts, func(keep storedriver.Retention) (store, error) {
		locks, err := redislock.NewDriver(client) // its connections need no Close
		if err != nil {
			return nil, err
		}
		if redisconn.ReadsReplicas(client) {
			return nil, fmt.Errorf("%w: an option of the client sends reads to replicas, which lag behind their master: "+
				"leave out ReadOnly, ReplicaOnly, RouteByLatency and RouteRandomly", distlock.ErrInvalidOption)
		}
		return &redisStore{locks.(redisconn.Locks).Transport(), keep}, nil
	})
}

// redisStore is a store. Its scripts have the rules.
type redisStore struct {
	redis *redisconn.Transport
	keep  storedriver.Retention
}

// member names a session in the indexes. ⚑ An escaped user has no slash, so a slash ends it.
func (i id) member() string { return url.QueryEscape(i.user) + "/" + url.QueryEscape(i.name) }

// call returns the keys and arguments of a script.
func (r *redisStore) call(a access, args ...any) ([]string, []any) {
	p, member := rediskeys.Prefix(r.keep.Namespace, a.app), a.member()
	// ⚑ A key that is not declared seems missing while its slot moves.
	keys := []string{p + "s:" + member, p + "e:" + member, p + "a", p + "u:" + url.QueryEscape(a.user), p + "i", p + "x"}
	return keys, append([]any{a.token, r.keep.IdleTTL.Milliseconds(), member, a.born}, args...)
}

func (r *redisStore) run(ctx context.Context, s *redisconn.Script, a access, args ...any) (*redisconn.Reply, reply, error) {
	keys, args := r.call(a, args...)
	return r.parse(s.Once(ctx, r.redis, keys, args...))
}

// parse reads the outcome of a reply, and leaves the rest.
func (r *redisStore) parse(cmd *redis.Cmd) (*redisconn.Reply, reply, error) {
	words, err := cmd.Slice()
	if err != nil {
		// A script that has failed after its first write says so.
		err = redisconn.WithEarlierCopy(redis.HasErrorPrefix(err, "WRITTEN"), err)
		return nil, reply{}, rediskinds.Explain(r.redis.Client(), "adksession", err)
	}
	rest := &redisconn.Reply{Parts: words, Unknown: errReply}
	answer := reply{outcome: outcome(rest.Number())}
	if answer.outcome == stale {
		answer.mark = rest.Number()
	}
	if answer.outcome != done {
		return rest, answer, rest.End()
	}
	return rest, answer, nil
}

var errReply = errors.New("adksession: Redis returned a reply in an unknown format: " +
	"use one version of this library in all processes, and no proxy that changes replies")

// pairs appends deltas to arguments.
func pairs(state []delta, args ...any) []any {
	for _, d := range state {
		args = append(args, string(rune(d.scope)), d.key, d.value)
	}
	return args
}

func (r *redisStore) create(ctx context.Context, c creation) (reply, error) {
	born := c.born
	c.born = ""
	return whole(r.run(ctx, createScript, c.access, pairs(c.state, born)...))
}

func (r *redisStore) get(ctx context.Context, p page) (reply, error) {
	return whole(r.run(ctx, getScript, p.access, p.from, p.recent, p.upto, pageBytes))
}

func (r *redisStore) append(ctx context.Context, w write) (reply, error) {
	rest, answer, err := r.run(ctx, appendScript, w.access, pairs(w.state, w.op, w.last, w.record)...)
	if err != nil || answer.outcome != done {
		return answer, err
	}
	answer.session.updated = time.UnixMicro(rest.Number())
	return answer, rest.End()
}

func (r *redisStore) delete(ctx context.Context, i id) error {
	_, _, err := r.run(ctx, deleteScript, access{id: i})
	return err
}

// whole reads the header, the states and the records of a reply.
func whole(rest *redisconn.Reply, answer reply, err error) (reply, error) {
	if err != nil || answer.outcome != done {
		return answer, err
	}
	s := &answer.session
	var header map[string]string
	header, s.state = make(map[string]string), make(map[string]string)
	for key, value := range texts(rest) {
		if cut, ok := strings.CutPrefix(key, "k"); ok {
			s.state[cut] = value
		} else {
			header[key] = value
		}
	}
	s.appState, s.userState = texts(rest), texts(rest)
	answer.from = rest.Number()
	list := rest.List()
	records := &redisconn.Reply{Parts: list, Unknown: errReply}
	for range list {
		answer.records = append(answer.records, records.Text())
	}
	s.born, s.op = header["b"], header["o"]
	n, err := strconv.ParseInt(cmp.Or(header["n"], "0"), 10, 64)
	updated, err2 := strconv.ParseInt(cmp.Or(header["u"], "0"), 10, 64)
	s.n, s.updated = n, time.UnixMicro(updated)
	return answer, cmp.Or(rest.End(), records.End(), err, err2)
}

// texts reads a hash.
func texts(rest *redisconn.Reply) map[string]string {
	list := rest.List()
	pairs := &redisconn.Reply{Parts: list, Unknown: errReply}
	hash := make(map[string]string, len(list)/2)
	for range len(list) / 2 {
		key := pairs.Text()
		hash[key] = pairs.Text()
	}
	rest.Err = cmp.Or(rest.Err, pairs.End())
	return hash
}

// listed is how many sessions a page of a List has.
const listed = 100

func (r *redisStore) list(ctx context.Context, app, user string, after id) (sessions []stored, next id, err error) {
	index, from, to := rediskeys.Prefix(r.keep.Namespace, app)+"i", "-", "+"
	if user != "" {
		from, to = "["+url.QueryEscape(user)+"/", "("+url.QueryEscape(user)+"0" // 0 follows the slash
	}
	if after != (id{}) {
		from = "(" + after.member()
	}
	names := redis.NewStringSliceCmd(ctx, "zrangebylex", index, from, to, "limit", 0, listed)
	if err := r.redis.Do(ctx, index, names); err != nil {
		return nil, id{}, rediskinds.Explain(r.redis.Client(), "adksession", err)
	}
	var ids []id
	var keys [][]string
	var args [][]any
	for _, member := range names.Val() {
		escapedUser, escapedName, _ := strings.Cut(member, "/")
		user, err := url.QueryUnescape(escapedUser)
		name, err2 := url.QueryUnescape(escapedName)
		if err != nil || err2 != nil {
			return nil, id{}, errReply
		}
		ids = append(ids, id{app, user, name})
		k, a := r.call(access{id: ids[len(ids)-1]}, 0, -1, 0, pageBytes)
		keys, args = append(keys, k), append(args, a)
	}
	for i, cmd := range getScript.Each(ctx, r.redis, keys, args) {
		answer, err := whole(r.parse(cmd))
		if err != nil {
			return nil, id{}, err
		}
		if answer.outcome == done { // else expired, or deleted since
			answer.session.id = ids[i]
			sessions = append(sessions, answer.session)
		}
	}
	if len(ids) == listed {
		next = ids[listed-1]
	}
	return sessions, next, nil
}
