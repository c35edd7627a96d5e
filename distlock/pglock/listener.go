package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// silence is how long the connection may be silent before it is checked.
	silence = 10 * time.Second
	// answerLimit bounds the wait for an answer on this connection, also when it closes.
	answerLimit = time.Second
	// reconnectPause is the time between two attempts to connect.
	reconnectPause = 100 * time.Millisecond
)

// run keeps a connection that listens until Close.
func (w *wakes) run() {
	for again := false; w.ctx.Err() == nil; again = true {
		w.session(again)
		w.mu.Lock()
		w.attempt = &attempt{done: make(chan struct{})}
		w.mu.Unlock()
	}
	w.settle(errClosed, false)
}

// session listens until the connection breaks.
func (w *wakes) session(again bool) {
	conn, err := w.s.held.Acquire(w.ctx)
	if err != nil {
		w.settle(err, again)
		pause(w.ctx, reconnectPause)
		return
	}
	if w.s.held.Pooled() { // ⚑ LISTEN would succeed, and no notification would come
		conn.Release()
		w.poll(again)
		return
	}
	defer discard(conn)
	err = within(w.ctx, func(ctx context.Context) error {
		_, err := conn.Exec(ctx, `LISTEN "`+w.channel+`"`, pgx.QueryExecModeExec)
		return err
	})
	w.settle(err, again)
	if err != nil {
		pause(w.ctx, reconnectPause)
		return
	}
	w.receive(conn.Conn())
}

func (w *wakes) receive(conn *pgx.Conn) {
	for {
		waiting, cancel := context.WithTimeout(w.ctx, silence)
		message, err := conn.WaitForNotification(waiting)
		cancel()
		if err != nil && pgconn.Timeout(err) && w.ctx.Err() == nil {
			err = within(w.ctx, conn.Ping)
		}
		if err != nil {
			return
		}
		if message == nil {
			continue
		}
		if owner, wake, err := parseMessage(message.Payload); err == nil {
			w.deliver(owner, wake)
		}
	}
}

// settle ends the present attempt to listen. After an interruption all waiters ask, because messages may
// be lost. After a failure they poll.
func (w *wakes) settle(err error, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempt.err = err
	close(w.attempt.done)
	for owner, to := range w.waiting {
		switch {
		case err != nil:
			close(to.wake)
			delete(w.waiting, owner)
		case again:
			replace(to.wake, driver.Wake{})
		}
	}
}

// discard closes a connection, whose session still listens, instead of returning it to its pool.
func discard(conn *pgxpool.Conn) {
	_ = within(context.Background(), conn.Conn().Close)
	conn.Release()
}

func within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return do(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
