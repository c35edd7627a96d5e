package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// index is the key of the index of inboxes, see lua/index.lua.
func (s *sessions) index() string { return s.keep.Namespace + ":inboxes" }

// Put implements storedriver.Driver. It is one request where one script may use the index and a session. Otherwise
// it writes the index before the item, because the process may die, and after it, because Inboxes may have removed
// the session in between.
func (s *sessions) Put(ctx context.Context, p storedriver.Put) (v storedriver.Verdict, err error) {
	keys, args := s.access(storedriver.Access{Session: p.Session}, "", false)
	args = append(args, storedriver.InboxLife.Milliseconds(), p.Deleted, field(p.ID),
		fmt.Sprintf("%03d%s%s", len(p.ID), p.ID, p.Question), p.Session, storedriver.InboxMax, storedriver.InboxBytes)
	keys = append(keys, s.keys(p.Session).inbox)
	if !s.apart.Load() {
		v, err = s.verdict(ctx, s.scripts.inbox, append(keys, s.index()), args)
		if !redis.HasErrorPrefix(err, "CROSSSLOT") {
			return v, err
		}
		s.apart.Store(true)
	}
	enlist := func() error {
		cmd, _ := s.scripts.enlist.Run(ctx, s.redis, []string{s.index()}, p.Session)
		return cmd.Err()
	}
	if err = enlist(); err != nil {
		return v, &stepError{s.explain(err)}
	}
	if v, err = s.verdict(ctx, s.scripts.inbox, keys, args); err == nil && v.Outcome == storedriver.Done {
		err = s.explain(redisconn.WithEarlierCopy(true, enlist()))
	}
	return v, err
}

// Pending implements storedriver.Driver.
func (s *sessions) Pending(ctx context.Context, a storedriver.Access,
) (v storedriver.Verdict, items []storedriver.Item, err error) {
	frees := !a.FirstAccess
	if frees {
		a = storedriver.Access{Session: a.Session}
	}
	keys, args := s.access(a, "", frees)
	keys, args = append(keys, s.keys(a.Session).inbox), append(args, storedriver.InboxLife.Milliseconds())
	cmd, _ := s.scripts.inbox.Run(ctx, s.redis, keys, args...)
	words, err := cmd.Slice()
	if err != nil || len(words) != 3 { // a refusal
		v, _, err = parseVerdict(cmd)
		return v, nil, s.explain(err)
	}
	reply := replyOf(words[1:])
	list, now := reply.List(), reply.Number()
	for _, item := range list {
		parts, _ := item.([]any)
		of := replyOf(parts)
		age := time.Duration(now-of.Number()) * time.Microsecond
		items = append(items, storedriver.Item{ID: of.Text(), Question: []byte(of.Text()), Age: age})
		err = cmp.Or(err, of.End())
	}
	slices.SortFunc(items, func(a, b storedriver.Item) int { return cmp.Compare(b.Age, a.Age) })
	return v, items, cmp.Or(err, reply.End())
}

// Inboxes implements storedriver.Driver. ⚑ The pages are those of ZSCAN. In the order of the scores, each Put
// would move its session away from the page that comes next.
func (s *sessions) Inboxes(ctx context.Context, after string) (names []string, next string, err error) {
	var found []string // names and scores
	_, err = s.redis.Repeat(ctx, func() error {
		change := redis.NewIntCmd(ctx, "zremrangebyscore", s.index(), 1, 0) // ⚑ of nothing, but a replica refuses it
		page := redis.NewScanCmd(ctx, nil, "zscan", s.index(), cmp.Or(after, "0"), "count", 100)
		if err := s.redis.Send(ctx, s.index(), change, page); err != nil {
			return err
		}
		var cursor uint64
		if found, cursor = page.Val(); cursor > 0 {
			next = fmt.Sprint(cursor)
		}
		return cmp.Or(change.Err(), page.Err())
	})
	err = s.explain(err)
	for i := 0; i < len(found) && err == nil; i += 2 {
		_, items, failed := s.Pending(ctx, storedriver.Access{Session: found[i]})
		switch {
		case failed == nil && len(items) == 0: // ⚑ a Put since then has another score
			_ = s.redis.Do(ctx, s.index(), redis.NewIntCmd(ctx, "zremrangebyscore", s.index(), found[i+1], found[i+1]))
		case failed == nil || errors.Is(failed, driver.ErrRefused) || errors.Is(failed, driver.ErrForeign):
			names = append(names, found[i]) // ⚑ one session that cannot be read ends no list
		default:
			err = failed
		}
	}
	return names, next, err
}
