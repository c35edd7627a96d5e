package redislock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// scanned is how many keys Redis looks at for one page.
const scanned = 1000

// place is where the next page of a list begins: a node, a cursor of SCAN, and the last name that
// an earlier page has shown of this cursor. ⚑ SCAN with the same cursor returns all names again
// that were not returned before this cursor.
type place struct {
	node   string
	cursor uint64
	shown  string
}

func (p place) String() string { return fmt.Sprintf("%s %d %s", p.node, p.cursor, p.shown) }

func parsePlace(text string) (p place, err error) {
	if text == "" {
		return p, nil
	}
	words := strings.SplitN(text, " ", 3)
	if len(words) == 3 {
		p.node, p.shown = words[0], words[2]
		p.cursor, err = strconv.ParseUint(words[1], 10, 64)
	}
	if len(words) < 3 || err != nil {
		return p, fmt.Errorf("redislock: %w: no page of a list has returned this place: use ListReply.Next", driver.ErrNotDone)
	}
	return p, nil
}

// List implements driver.Lister, for operators: Redis reads all of its keys. Each page covers about
// 1,000 keys of one node. It leaves out free locks.
func (s *service) List(ctx context.Context, req driver.ListRequest) (page driver.ListReply, err error) {
	at, err := parsePlace(req.After)
	if err != nil {
		return page, err
	}
	nodes, err := s.masters(ctx)
	if err != nil {
		return page, s.failed(err)
	}
	slices.SortFunc(nodes, func(a, b *redis.Client) int { return cmp.Compare(a.Options().Addr, b.Options().Addr) })
	i := slices.IndexFunc(nodes, func(n *redis.Client) bool { return n.Options().Addr >= at.node })
	if i < 0 {
		return page, nil
	}
	if nodes[i].Options().Addr != at.node {
		at = place{node: nodes[i].Options().Addr}
	}
	over := s.over(nodes[i])
	names, cursor, err := s.scan(ctx, over, req.Namespace, at.cursor)
	if err != nil {
		return page, s.failed(err)
	}
	names = slices.DeleteFunc(names, func(name driver.Name) bool { return at.shown != "" && name.Key <= at.shown })
	if len(names) > req.Limit {
		names = names[:req.Limit]
		page.Next = place{at.node, at.cursor, names[req.Limit-1].Key}.String()
	} else if cursor != 0 {
		page.Next = place{node: at.node, cursor: cursor}.String()
	} else if i+1 < len(nodes) {
		page.Next = place{node: nodes[i+1].Options().Addr}.String()
	}
	page.Names, err = s.listed(ctx, over, names, req.Waiters)
	return page, err
}

// masters are the nodes that keep locks.
func (s *service) masters(ctx context.Context) ([]*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return []*redis.Client{c}, nil
	case *redis.ClusterClient:
		type masters struct {
			nodes []*redis.Client
			err   error
		}
		found := make(chan masters, 1)
		s.listing.Go(func() { // go-redis may read on when ctx has ended
			var mu sync.Mutex
			var m masters
			m.err = c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
				mu.Lock()
				defer mu.Unlock()
				m.nodes = append(m.nodes, node)
				return nil
			})
			found <- m
		})
		select {
		case m := <-found:
			return m.nodes, m.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("%w: make the client with redis.NewClient or redis.NewClusterClient", driver.ErrRefused)
}

// over is the transport for one node of a Cluster, or for the only node.
func (s *service) over(node *redis.Client) *redisconn.Transport {
	if redis.UniversalClient(node) == s.client {
		return s.redis
	}
	over, ok := s.nodes.Load(node)
	if !ok {
		over, _ = s.nodes.LoadOrStore(node, redisconn.New(node))
	}
	return over.(*redisconn.Transport)
}

var patterns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// scan returns the names of one step of SCAN, by their keys, and the next cursor.
func (s *service) scan(ctx context.Context, over *redisconn.Transport, namespace string, cursor uint64,
) (found []driver.Name, next uint64, err error) {
	cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", patterns.Replace(namespace)+":{*}:lock", "count", scanned)
	if err := over.InOrder(ctx, "", cmd); err != nil {
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

// listed returns the locks of names. It leaves out free locks and data of other programs.
func (s *service) listed(ctx context.Context, over *redisconn.Transport, names []driver.Name, waiters int,
) (listed []driver.Listed, err error) {
	for _, name := range names {
		keys := keysOf(name)
		cmd, _ := inspectScript.Run(ctx, over, []string{keys.lock(), keys.queue(), keys.waiters()}, waiters)
		parts, err := cmd.Slice()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			continue
		} else if err != nil {
			return nil, s.failed(err)
		}
		if l, err := parseListed(name, parts); err == nil && (l.State.Held || len(l.Queue) > 0 || l.State.Waiters > 0) {
			listed = append(listed, l)
		}
	}
	return listed, nil
}

func parseListed(name driver.Name, parts []any) (l driver.Listed, err error) {
	l.Name = name
	if len(parts) == 0 {
		return l, nil
	}
	r := &scriptReply{parts: parts}
	rec, ttl, now := r.shown()
	waiters := int(r.number())
	if r.err != nil {
		return l, r.err
	}
	if l.State, err = rec.state(ttl, now, waiters); err != nil {
		return l, err
	}
	l.State.Waiters = waiters
	for len(r.parts) > 0 && r.err == nil {
		ticket, ticketErr := strconv.ParseInt(r.text(), 10, 64)
		words := strings.SplitN(r.text(), ":", 4)
		alive, aliveErr := strconv.ParseInt(words[0], 10, 64)
		left := time.Duration(alive-now/1000) * time.Millisecond
		if ticketErr != nil || aliveErr != nil || len(words) < 4 || left <= 0 {
			continue
		}
		holder, _ := parseHolder(words[3])
		l.Queue = append(l.Queue, driver.Waiter{Holder: holder, Ticket: ticket, Alive: left})
	}
	return l, r.err
}

// Break implements driver.Breaker, for operators.
func (s *service) Break(ctx context.Context, name driver.Name, fence int64) (bool, error) {
	broken, replayed, err := s.release(ctx, keysOf(name).all(), []any{"", 0, 0, fence}, nil)
	return broken, redisconn.After(replayed, err)
}
