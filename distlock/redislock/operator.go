package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/rediskeys"
)

// List implements driver.Lister, for operators: Redis reads all of its keys. Each page covers about
// 1,000 keys of one node. It leaves out free locks and data of other programs.
func (d *lockDriver) List(ctx context.Context, req driver.ListRequest) (page driver.ListReply, err error) {
	if req.Key != "" {
		listed, err := d.inspect(ctx, driver.Name{Namespace: req.Namespace, Key: req.Key}, req.Waiters)
		if err == nil {
			page.Names = used(listed)
		}
		return page, err
	}
	keys, next, err := rediskeys.Names(ctx, d.transport, req.Namespace, "lock", req.After, req.Limit)
	if err != nil {
		return page, d.explain(err)
	}
	page.Next = next
	names := make([]driver.Name, len(keys))
	for i, key := range keys {
		names[i] = driver.Name{Namespace: req.Namespace, Key: key}
	}
	all, err := d.inspectAll(ctx, names, req.Waiters)
	if err != nil {
		return driver.ListReply{}, err
	}
	page.Names = used(all...)
	return page, nil
}

// used leaves out free locks without waiters.
func used(all ...driver.Listed) []driver.Listed {
	return slices.DeleteFunc(all, func(l driver.Listed) bool { return !l.State.Held && l.State.Waiters == 0 })
}

// inspectAll shows names in one round trip to each of their nodes. It leaves out data of other programs.
func (d *lockDriver) inspectAll(ctx context.Context, names []driver.Name, waiters int) (all []driver.Listed, err error) {
	keys, args := make([][]string, len(names)), make([][]any, len(names))
	for i, name := range names {
		keys[i], args[i] = keysOf(name).all()[:3], []any{waiters}
	}
	_, err = d.transport.Repeat(ctx, func() error {
		all = nil
		for i, cmd := range inspectScript.Each(ctx, d.transport, keys, args) {
			listed, err := d.parseListed(names[i], cmd)
			switch {
			case err == nil:
				all = append(all, listed)
			case !errors.Is(err, driver.ErrForeign):
				return err
			}
		}
		return nil
	})
	return all, err
}

// Inspect implements driver.Driver.
func (d *lockDriver) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	listed, err := d.inspect(ctx, name, 0)
	return listed.State, err
}

// inspect shows a lock and the given number of its waiters.
func (d *lockDriver) inspect(ctx context.Context, name driver.Name, waiters int) (driver.Listed, error) {
	cmd, _ := inspectScript.Run(ctx, d.transport, keysOf(name).all()[:3], waiters)
	return d.parseListed(name, cmd)
}

// parseListed reads the reply of inspect.lua.
func (d *lockDriver) parseListed(name driver.Name, cmd *redis.Cmd) (driver.Listed, error) {
	l := driver.Listed{Name: name}
	parts, err := cmd.Slice()
	if err != nil {
		return l, d.explain(err)
	}
	if len(parts) == 0 {
		return l, nil
	}
	r := replyOf(parts)
	rec, ttl, now := readRecord(r)
	waiters := int(r.Number())
	if r.Err != nil {
		return driver.Listed{}, r.Err
	}
	state, err := rec.state(ttl, now, waiters)
	if err != nil {
		return driver.Listed{}, err
	}
	l.State, l.State.Waiters = state, waiters
	for len(r.Parts) > 0 && r.Err == nil {
		ticket, ticketErr := strconv.ParseInt(r.Text(), 10, 64)
		words := strings.SplitN(r.Text(), ":", 4)
		alive, aliveErr := strconv.ParseInt(words[0], 10, 64)
		left := time.Duration(alive-now/1000) * time.Millisecond
		if ticketErr != nil || aliveErr != nil || len(words) < 4 || left <= 0 {
			continue
		}
		var shown payload
		_ = json.Unmarshal([]byte(words[3]), &shown) // a damaged payload has no holder
		l.Queue = append(l.Queue, driver.Waiter{
			Holder: shown.Holder, Metadata: shown.Metadata, Ticket: ticket, Alive: left,
		})
	}
	return l, r.Err
}

// Break implements driver.Breaker, for operators.
func (d *lockDriver) Break(ctx context.Context, name driver.Name, fence int64) (bool, error) {
	reply, err := d.release(ctx, releaseScript, name, "", 0, 0, fence)
	return reply.Released, err
}
