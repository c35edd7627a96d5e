package matrix

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// turnOrder is one turn of a child.
type turnOrder struct {
	Key   string
	Apart bool   // its lock is apart from the store
	Used  bool   // it saves before it is stopped
	Late  string // what it does when it goes on
}

// lateWrites are what a holder may be about to do when it is stopped. A Load is that too: it shows
// the token.
var lateWrites = map[string]func(ctx context.Context, s *session) error{
	"save": func(ctx context.Context, s *session) error { return s.store.Save(ctx, "stale", reply("stale")) },
	"named": func(ctx context.Context, s *session) error {
		return s.store.SaveOnce(ctx, "id", "stale", reply("stale"))
	},
	"clear": func(ctx context.Context, s *session) error { return s.store.Clear(ctx) },
	"load": func(ctx context.Context, s *session) error {
		_, err := s.store.Load(ctx, "")
		return err
	},
}

// turnOrders are turns for each of them, on sessions of their own.
func turnOrders(prefix string) (orders []turnOrder) {
	for late := range lateWrites {
		for _, used := range []bool{false, true} {
			if late == "load" && used { // it has shown its token before, and any reader may read
				continue
			}
			for _, apart := range []bool{false, true} {
				orders = append(orders, turnOrder{Key: fmt.Sprintf("%s-%s-%t-%t", prefix, late, used, apart), Apart: apart, Used: used, Late: late})
			}
		}
	}
	return orders
}

// report is what a child says of one turn: when it has begun, Key and Fence, and when it is over,
// all.
type report struct {
	Key   string
	Fence int64

	// What the store said to the late write. Stale: it has refused it by itself, having seen Mark.
	Text        string
	Stale, Lost bool
	Mark        int64
	// What Turn returned.
	Turn     string
	TurnLost bool
}

// sessionOrder has a child work on sessions of a service.
type sessionOrder struct {
	Turns   []turnOrder
	TTL     time.Duration
	Service target
}

// serveTurns sends reports when it is in the middle of all turns. At the parent's word serveTurns
// writes at once, past every check of its leases. Then the turns end, and it sends reports of them.
func serveTurns(_ context.Context, parent *child.Line, o sessionOrder) error {
	var clients [2]client
	var lockers [2]*distlock.Locker
	for i := range clients {
		var err error
		if clients[i], err = o.Service.open(); err != nil {
			return err
		}
		if lockers[i], err = newLocker(clients[i], withTTL(o.TTL)); err != nil {
			return err
		}
	}
	in := instance{client: clients[0], beside: lockers[0], apart: lockers[1]}
	reports, goOn := make(chan report), make(chan struct{})
	for _, o := range o.Turns {
		go func() {
			s := in.session(o.Key, o.Apart)
			r := report{Key: o.Key}
			err := s.Turn(context.Background(), func(ctx context.Context) error {
				if o.Used {
					if err := s.save(ctx, "old"); err != nil {
						return err
					}
				}
				lease, _ := lockedmemory.Lease(ctx)
				r.Fence = lease.Fence()
				reports <- r
				<-goOn
				err := lateWrites[o.Late](context.WithoutCancel(ctx), s)
				var stale *sessionstore.StaleError
				if r.Text, r.Lost = fmt.Sprint(err), errors.Is(err, distlock.ErrLost); errors.As(err, &stale) {
					r.Stale, r.Fence, r.Mark = true, stale.Fence, stale.MarkToken
				}
				return nil
			})
			r.Turn, r.TurnLost = fmt.Sprint(err), errors.Is(err, distlock.ErrLost)
			reports <- r
		}()
	}
	send := func() error {
		all := make(map[string]report)
		for range o.Turns {
			r := <-reports
			all[r.Key] = r
		}
		return parent.Send(all)
	}
	var word string
	if err := errors.Join(send(), parent.Receive(&word)); err != nil {
		return err
	}
	close(goOn)
	return send()
}
