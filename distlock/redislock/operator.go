package redislock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// scanned is how many keys Redis reads for one page.
const scanned = 1000

// place is where the next page of a list begins: a node, a cursor of SCAN, and the last name that an
// earlier page has shown of this cursor. ⚑ SCAN with the same cursor returns all names again that
// were not returned before this cursor.
type place struct {
	Node   string
	Cursor uint64
	Shown  []byte
}

func (p place) String() string {
	text, _ := json.Marshal(p)
	return string(text)
}

// List implements driver.Lister, for operators: Redis reads all of its keys. Each page covers about
// 1,000 keys of one node. It leaves out free locks and data of other programs.
func (s *service) List(ctx context.Context, req driver.ListRequest) (page driver.ListReply, err error) {
	var at place
	if req.After != "" && json.Unmarshal([]byte(req.After), &at) != nil {
		return page, fmt.Errorf("redislock: %w: no page of a list has returned this place: use ListReply.Next",
			driver.ErrNotDone)
	}
	nodes, err := s.redis.Masters(ctx)
	if err != nil {
		return page, s.failed(err)
	}
	i := slices.IndexFunc(nodes, func(n redisconn.Node) bool { return n.Addr >= at.Node })
	if i < 0 {
		return page, nil
	}
	if nodes[i].Addr != at.Node {
		at = place{Node: nodes[i].Addr}
	}
	names, cursor, err := s.scan(ctx, nodes[i], req.Namespace, at.Cursor)
	if err != nil {
		return page, s.failed(err)
	}
	shown := string(at.Shown)
	names = slices.DeleteFunc(names, func(name driver.Name) bool { return shown != "" && name.Key <= shown })
	if len(names) > req.Limit {
		names = names[:req.Limit]
		page.Next = place{at.Node, at.Cursor, []byte(names[req.Limit-1].Key)}.String()
	} else if cursor != 0 {
		page.Next = place{Node: at.Node, Cursor: cursor}.String()
	} else if i+1 < len(nodes) {
		page.Next = place{Node: nodes[i+1].Addr}.String()
	}
	for _, name := range names {
		listed, err := s.inspect(ctx, name, req.Waiters)
		if err != nil && !errors.Is(err, driver.ErrForeign) {
			return driver.ListReply{}, err
		}
		if listed.State.Held || listed.State.Waiters > 0 {
			page.Names = append(page.Names, listed)
		}
	}
	return page, nil
}

var patterns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// scan returns the names of one step of SCAN, by their keys, and the next cursor.
func (s *service) scan(ctx context.Context, node redisconn.Node, namespace string, cursor uint64,
) (found []driver.Name, next uint64, err error) {
	cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", patterns.Replace(namespace)+":{*}:lock", "count", scanned)
	if err := node.Do(ctx, cmd); err != nil {
		return nil, 0, err
	}
	locks, next, err := cmd.Result()
	for _, lock := range locks {
		if name, ok := nameOf(namespace, lock); ok {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b driver.Name) int { return cmp.Compare(a.Key, b.Key) })
	return slices.Compact(found), next, err
}

// Inspect implements driver.Driver.
func (s *service) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	listed, err := s.inspect(ctx, name, 0)
	return listed.State, err
}

// inspect shows a lock and the given number of its waiters.
func (s *service) inspect(ctx context.Context, name driver.Name, waiters int) (driver.Listed, error) {
	keys, args := keysOf(name).all()[:3], []any{waiters}
	cmd, _ := inspectScript.RunOr(ctx, s.redis, keys, args, inspectScript, args)
	parts, err := cmd.Slice()
	if err != nil {
		return driver.Listed{}, s.failed(err)
	}
	return parseListed(name, parts)
}

// parseListed reads the reply of inspect.lua.
func parseListed(name driver.Name, parts []any) (driver.Listed, error) {
	l := driver.Listed{Name: name}
	if len(parts) == 0 {
		return l, nil
	}
	r := &scriptReply{parts: parts}
	rec, ttl, now := r.shown()
	waiters := int(r.number())
	if r.err != nil {
		return driver.Listed{}, r.err
	}
	state, err := rec.state(ttl, now, waiters)
	if err != nil {
		return driver.Listed{}, err
	}
	l.State, l.State.Waiters = state, waiters
	for len(r.parts) > 0 && r.err == nil {
		ticket, ticketErr := strconv.ParseInt(r.text(), 10, 64)
		words := strings.SplitN(r.text(), ":", 4)
		alive, aliveErr := strconv.ParseInt(words[0], 10, 64)
		left := time.Duration(alive-now/1000) * time.Millisecond
		if ticketErr != nil || aliveErr != nil || len(words) < 4 || left <= 0 {
			continue
		}
		var shown payload
		_ = json.Unmarshal([]byte(words[3]), &shown) // a damaged payload has no holder
		l.Queue = append(l.Queue, driver.Waiter{Holder: shown.Holder, Ticket: ticket, Alive: left})
	}
	return l, r.err
}

// Break implements driver.Breaker, for operators.
func (s *service) Break(ctx context.Context, name driver.Name, fence int64) (bool, error) {
	broken, _, err := s.release(ctx, releaseFull, keysOf(name).all(), []any{"", 0, 0, fence}, nil)
	return broken, err
}
