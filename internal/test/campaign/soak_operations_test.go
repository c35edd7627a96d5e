package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// The population of names. All of them are in use again and again: the 300 free ones within 3 s, the
// sessions with breaks within 8 s, of which they are idle for 7 s.
const (
	freeNames, hotNames, longNames, openedNames = 300, 2, 16, 20
	lasting, visitors                           = 40, 60
	visitLength                                 = 4 // turns
)

func longName(n int) string { return fmt.Sprint("long-", n) }

// operation is a kind of operation. What it expects to fail is no error.
type operation struct {
	name  string
	share int // of a hundred
	do    func(*call, context.Context) error
}

var operations = []operation{
	{"free locks", 24, (*call).takeFree},
	{"contended locks", 14, (*call).contend},
	{"tries", 10, (*call).tryBusy},
	{"hasty acquisitions", 10, (*call).leaveEarly},
	{"turns", 16, (*call).turn},
	{"Saves", 10, (*call).save},
	{"Saves with an ID", 8, (*call).saveTwice},
	{"Clears", 1, (*call).clear},
	{"visits", 6, (*call).visit},
	{"Lockers", 1, (*call).open},
}

// call is one operation of an instance.
type call struct {
	load   *load
	in     *instance
	random *rand.Rand
}

func (c *call) freeName() string { return fmt.Sprint("free-", c.load.free.Add(1)%freeNames) }

// takeFree takes a free lock, in one of several ways.
func (c *call) takeFree(ctx context.Context) error {
	name := c.freeName()
	switch c.random.IntN(3) {
	case 0:
		return c.in.locker.Do(ctx, name, func(context.Context) error { return nil })
	case 1:
		lease, err := c.in.locker.TryAcquire(ctx, name)
		if errors.Is(err, distlock.ErrNotAcquired) {
			return nil // a release on a killed connection may have left it held
		}
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	default:
		lease, err := c.in.locker.Acquire(ctx, name)
		if err != nil {
			return err
		}
		return errors.Join(lease.Extend(ctx, 2*soakTTL), lease.Release(ctx))
	}
}

// contend takes a lock that others contend for, and hold for 10 ms each, three quarters of the time.
func (c *call) contend(ctx context.Context) error {
	return c.in.locker.Do(ctx, fmt.Sprint("hot-", c.random.IntN(hotNames)), func(context.Context) error {
		time.Sleep(10 * time.Millisecond) // the work
		return nil
	})
}

// tryBusy asks once for a lock that another worker holds most of the time.
func (c *call) tryBusy(ctx context.Context) error {
	lease, err := c.in.locker.TryAcquire(ctx, longName(c.random.IntN(longNames)))
	if errors.Is(err, distlock.ErrNotAcquired) {
		return nil
	}
	return errors.Join(err, lease.Release(ctx))
}

// leaveEarly is cancelled: in the queue, or at any moment of taking a free lock.
func (c *call) leaveEarly(ctx context.Context) error {
	name, patience := longName(c.random.IntN(longNames)), 20*time.Millisecond
	if c.random.IntN(2) == 0 {
		name, patience = c.freeName(), time.Millisecond
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Duration(c.random.Int64N(int64(patience))), cancel).Stop()
	lease, err := c.in.locker.Acquire(ctx, name)
	if err == nil {
		err = lease.Release(ctx)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// talk is a session that goes on all the time.
func (c *call) talk(ctx context.Context) context.Context {
	return lockedmemory.WithSession(ctx, fmt.Sprint("talk-", c.random.IntN(lasting)))
}

// id returns one that no other exchange has.
func (c *call) id() string { return fmt.Sprint("message-", c.load.id.Add(1)) }

func (c *call) exchange() (question, answer remark) {
	text := strings.Repeat("word ", 10+c.random.IntN(20))
	return remark{"user", text}, remark{"assistant", text}
}

func (c *call) turn(ctx context.Context) error {
	return c.in.talks.Turn(c.talk(ctx), func(ctx context.Context) error {
		history, err := c.in.talks.Load(ctx, "")
		if err != nil {
			return err
		}
		if len(history) > 2*shownTurns {
			return fmt.Errorf("a window of %d turns has %d messages", shownTurns, len(history))
		}
		question, answer := c.exchange()
		if c.random.IntN(2) == 0 {
			return c.in.talks.SaveOnce(ctx, c.id(), question, answer)
		}
		return c.in.talks.Save(ctx, question, answer)
	})
}

func (c *call) save(ctx context.Context) error {
	question, answer := c.exchange()
	return c.in.talks.Save(c.talk(ctx), question, answer)
}

// saveTwice repeats a SaveOnce, half of the time.
func (c *call) saveTwice(ctx context.Context) error {
	ctx, id := c.talk(ctx), c.id()
	question, answer := c.exchange()
	err := c.in.talks.SaveOnce(ctx, id, question, answer)
	if err == nil && c.random.IntN(2) == 0 {
		err = c.in.talks.SaveOnce(ctx, id, question, answer)
	}
	return err
}

func (c *call) clear(ctx context.Context) error { return c.in.talks.Clear(c.talk(ctx)) }

// visit is a turn of a session that has a few, and is then left alone until it has expired.
func (c *call) visit(ctx context.Context) error {
	visitor := c.load.visits.Add(1) / visitLength % visitors
	ctx = lockedmemory.WithSession(ctx, fmt.Sprint("visitor-", visitor))
	return c.in.visits.Turn(ctx, func(ctx context.Context) error {
		if _, err := c.in.visits.Load(ctx, ""); err != nil {
			return err
		}
		question, answer := c.exchange()
		return c.in.visits.Save(ctx, question, answer)
	})
}

// open has a Locker of its own, which it closes with a lease that is held, half of the time.
func (c *call) open(ctx context.Context) error {
	options := c.in.options
	locker, err := redislock.New(c.in.client, &options)
	if err != nil {
		return err
	}
	lease, err := locker.Acquire(ctx, fmt.Sprint("opened-", c.random.IntN(openedNames)))
	if err == nil && c.random.IntN(2) == 0 {
		err = lease.Release(ctx)
	}
	return errors.Join(err, locker.Close(ctx))
}
