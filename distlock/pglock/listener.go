package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// silence is how long the connection may be silent before it is checked.
	silence = 10 * time.Second
	// answerLimit bounds the wait for an answer on this connection.
	answerLimit = 5 * time.Second
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
	listeners := 0
	err = within(w.ctx, func(ctx context.Context) (err error) {
		listeners, err = listen(ctx, conn.Conn(), w.channel)
		return err
	})
	if err == nil && listeners > maxListeners {
		w.s.held.Discard(conn)
		w.poll(again)
		return
	}
	defer w.s.held.Discard(conn) // its session still listens
	w.settle(err, again)
	if err != nil {
		pause(w.ctx, reconnectPause)
		return
	}
	w.receive(conn.Conn())
}

// maxListeners is the most drivers of one database that listen. Later ones poll. ⚑ Each notification
// wakes the connections of all listeners.
const maxListeners = 50

// listen returns the number of drivers that listen, with this one. Each of them holds a shared advisory
// lock, so any role can count them.
func listen(ctx context.Context, conn *pgx.Conn, channel string) (listeners int, err error) {
	if _, err = conn.Exec(ctx, `LISTEN "`+channel+`"`, pgx.QueryExecModeExec); err != nil {
		return 0, err
	}
	if _, err = conn.Exec(ctx, "SELECT pg_advisory_lock_shared(1818586987, 1)", pgx.QueryExecModeExec); err != nil {
		return 0, err
	}
	const count = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1818586987 AND objid = 1
		AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	err = conn.QueryRow(ctx, count, pgx.QueryExecModeExec).Scan(&listeners)
	return listeners, err
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
