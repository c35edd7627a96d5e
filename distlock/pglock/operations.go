package pglock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
)

// errReply is the error of an answer in an unknown format.
var errReply = errors.New("pglock: the database answered in an unknown format")

// payload shows a holder or a waiter to others. The functions do not read it.
type payload struct {
	Holder   string            `json:"h,omitempty"`
	Metadata map[string]string `json:"m,omitempty"`
}

func encodePayload(req driver.AcquireRequest) []byte {
	text, _ := json.Marshal(payload{req.Holder, req.Metadata}) // strings alone: it cannot fail
	return text
}

// shown is a grant as the functions show it. Durations are in µs.
type shown struct {
	fence          zeronull.Int8
	waiters        zeronull.Int4
	age, remaining zeronull.Int8
	payload        []byte
}

func (g shown) state() (driver.State, error) {
	var p payload
	if err := json.Unmarshal(g.payload, &p); err != nil {
		return driver.State{}, errReply
	}
	return driver.State{
		Held: true, Holder: p.Holder, Metadata: p.Metadata, Fence: int64(g.fence), Waiters: int(g.waiters),
		Age: max(0, micros(g.age)), TTL: micros(g.remaining),
	}, nil
}

func micros[N ~int64](n N) time.Duration { return time.Duration(n) * time.Microsecond }

const (
	// rowLimit is how long a call waits for a row that another transaction locks.
	rowLimit = 20 * time.Millisecond
	// turnLimit is how long a call waits for such a row when its turn has come.
	turnLimit = 2 * time.Second
)

// callOnRow calls a function that locks the row of a name. If another transaction locks the row for
// too long, the call has had no effect, and callOnRow makes it again at its turn. ⚑ Such calls run one
// at a time, so they never occupy all connections for calls.
func callOnRow[T any](
	ctx context.Context, s *service, name driver.Name, scan pgx.RowToFunc[T], function string, args ...any,
) (answer T, err error) {
	s.sweepFrom.CompareAndSwap(nil, &name)
	call := func(wait time.Duration) (T, error) {
		with := append(append([]any{name.Namespace, name.Key}, args...), wait.Milliseconds())
		return postgres.One(ctx, s.calls, scan, function, with...)
	}
	answer, err = call(rowLimit)
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "55P03" {
		return answer, err
	}
	select {
	case s.lockedRow <- struct{}{}:
		defer func() { <-s.lockedRow }()
		return call(turnLimit)
	case <-ctx.Done():
		return answer, fmt.Errorf("%w: %w", err, ctx.Err())
	}
}

// acquired is the answer of acquire_v1.
type acquired struct {
	outcome    string
	end, place zeronull.Int8
	grant      shown
	to         handoff
}

func scanAcquired(row pgx.CollectableRow) (a acquired, err error) {
	g := &a.grant
	return a, row.Scan(&a.outcome, &g.fence, &a.end, &g.waiters, &g.age, &g.remaining, &g.payload, &a.place,
		&a.to.channel, &a.to.message)
}

func (a acquired) reply() (reply driver.AcquireReply, err error) {
	switch a.outcome {
	case "granted":
		return driver.AcquireReply{
			Outcome: driver.Granted, Fence: int64(a.grant.fence), FenceEnd: int64(a.end), Waiters: int(a.grant.waiters),
		}, nil
	case "cancelled":
		return driver.AcquireReply{Outcome: driver.Cancelled}, nil
	case "full":
		reply.Outcome = driver.Full
	case "busy":
		reply.Ticket = int64(a.place)
	default:
		return reply, errReply
	}
	reply.State, err = a.grant.state()
	return reply, err
}

// Acquire implements driver.Driver.
func (s *service) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	channel := ""
	if req.Alive > 0 {
		channel = s.wakes.enter(req.Owner)
	}
	answer, err := callOnRow(ctx, s, req.Name, scanAcquired, "acquire_v1", req.Owner, req.TTL.Microseconds(),
		encodePayload(req), req.Alive.Microseconds(), req.Seq, req.Ticket, channel)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	s.wakes.handoff(answer.to)
	return answer.reply()
}

// Raise implements driver.Driver.
func (s *service) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	return callOnRow(ctx, s, req.Name, func(row pgx.CollectableRow) (reply driver.RaiseReply, err error) {
		err = row.Scan(&reply.Held, (*zeronull.Int8)(&reply.Fence), (*zeronull.Int8)(&reply.FenceEnd))
		return reply, err
	}, "raise_v1", req.Owner, req.Floor)
}

const (
	// extendLimit is how long an Extend waits for a row that another transaction locks.
	extendLimit = 50 * time.Millisecond
	// extendsLimit bounds these waits of one Extend together.
	extendsLimit = 2 * extendLimit
)

// Extend implements driver.Driver. It first skips the rows that other transactions lock, and then waits
// for each of them alone. ⚑ No row thus delays other renewals for longer than extendsLimit.
func (s *service) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	skipped := s.extend(ctx, reqs, replies, 0)
	rand.Shuffle(len(skipped), func(i, j int) { skipped[i], skipped[j] = skipped[j], skipped[i] })
	until := time.Now().Add(extendsLimit)
	for _, i := range skipped {
		if time.Now().After(until) {
			replies[i].Err = errRow
		} else {
			s.extend(ctx, reqs[i:i+1], replies[i:i+1], extendLimit)
		}
	}
	return replies
}

var errRow = fmt.Errorf("pglock: %w: another transaction locks the row of the lease", driver.ErrTemporary)

// extend sends one statement. Without a wait, it returns the indexes of the requests whose rows are
// locked.
func (s *service) extend(
	ctx context.Context, reqs []driver.ExtendRequest, replies []driver.ExtendReply, wait time.Duration,
) (skipped []int) {
	var namespaces, keys, owners []string
	var ttls []int64
	for _, req := range reqs {
		namespaces, keys, owners = append(namespaces, req.Name.Namespace), append(keys, req.Name.Key), append(owners, req.Owner)
		ttls = append(ttls, req.TTL.Microseconds())
	}
	type answer struct {
		i       int
		outcome string
	}
	answers, err := postgres.Call(ctx, s.held, func(row pgx.CollectableRow) (a answer, err error) {
		return a, row.Scan(&a.i, &a.outcome)
	}, "extend_v1", namespaces, keys, owners, ttls, wait.Milliseconds())
	if err == nil && len(answers) != len(reqs) {
		err = errReply
	}
	for i := range replies {
		replies[i].Err = err
	}
	for _, a := range answers {
		switch i := a.i - 1; a.outcome {
		case "held", "asked":
			replies[i].Held, replies[i].Asked = true, a.outcome == "asked"
		case "skipped":
			skipped = append(skipped, i)
		case "not held":
		default: // ⚑ "not held" is final
			replies[i].Err = errReply
		}
	}
	return skipped
}

// Release implements driver.Driver.
func (s *service) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	released, err := s.release(ctx, req.Name, "release_v1", req.Owner, req.Tombstone.Microseconds(), req.Leave)
	return driver.ReleaseReply{Released: released}, err
}

func (s *service) release(ctx context.Context, name driver.Name, function string, args ...any) (bool, error) {
	type answer struct {
		released bool
		to       handoff
	}
	a, err := callOnRow(ctx, s, name, func(row pgx.CollectableRow) (a answer, err error) {
		return a, row.Scan(&a.released, &a.to.channel, &a.to.message)
	}, function, args...)
	s.wakes.handoff(a.to)
	return a.released, err
}

// Inspect implements driver.Driver.
func (s *service) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	return postgres.One(ctx, s.calls, func(row pgx.CollectableRow) (state driver.State, err error) {
		var held bool
		var g shown
		if err := row.Scan(&held, &g.fence, &g.waiters, &g.age, &g.remaining, &g.payload); err != nil || !held {
			return state, err
		}
		return g.state()
	}, "inspect_v1", name.Namespace, name.Key)
}

// lastKey is above all keys, which have at most 1,024 bytes.
var lastKey = strings.Repeat("\U0010FFFF", 257)

// List implements driver.Lister. Pages are in the order of the keys.
func (s *service) List(ctx context.Context, req driver.ListRequest) (page driver.ListReply, err error) {
	from, to := req.Key, req.Key
	if req.Key == "" {
		from, to = req.After, lastKey
	}
	if req.After != "" {
		from += "\x01" // keys have no control characters, so this is above After and below the next key
	}
	page.Names, err = postgres.Call(ctx, s.calls, func(row pgx.CollectableRow) (l driver.Listed, err error) {
		var held bool
		var g shown
		var tickets, alive []int64
		var holders [][]byte
		l.Name.Namespace = req.Namespace
		if err := row.Scan(&l.Name.Key, &held, &g.fence, &g.waiters, &g.age, &g.remaining, &g.payload,
			&tickets, &alive, &holders); err != nil {
			return l, err
		}
		if held {
			l.State, err = g.state()
		}
		l.State.Waiters = int(g.waiters)
		for i, ticket := range tickets {
			var p payload
			if json.Unmarshal(holders[i], &p) != nil {
				err = errReply
			}
			l.Queue = append(l.Queue, driver.Waiter{Holder: p.Holder, Metadata: p.Metadata, Ticket: ticket, Alive: micros(alive[i])})
		}
		return l, err
	}, "list_v1", req.Namespace, from, to, req.Limit, req.Waiters)
	if err == nil && req.Key == "" && len(page.Names) == req.Limit {
		page.Next = page.Names[req.Limit-1].Name.Key
	}
	return page, err
}

// Break implements driver.Breaker.
func (s *service) Break(ctx context.Context, name driver.Name, fence int64) (bool, error) {
	return s.release(ctx, name, "break_v1", fence)
}
