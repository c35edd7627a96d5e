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
	// answerLimit bounds the wait for an answer on this connection.
	answerLimit = 5 * time.Second
	// reconnectPause is the time between two attempts to connect.
	reconnectPause = 100 * time.Millisecond
)

// run listens, or polls for a while, again and again until Close.
func (w *wakes) run() {
	for again := false; w.ctx.Err() == nil; again = true {
		conn, err := w.connect()
		w.settle(err, again)
		switch {
		case err != nil:
			pause(w.ctx, reconnectPause)
		case conn == nil:
			w.poll()
		default:
			w.receive(conn.Conn())
			w.s.held.Discard(conn) // its session still listens
		}
		w.mu.Lock()
		w.connection = &connection{done: make(chan struct{})}
		w.mu.Unlock()
	}
	w.settle(errClosed, false)
}

// connect returns a connection that listens. Without a connection and an error, the driver polls
// for a while.
func (w *wakes) connect() (*pgxpool.Conn, error) {
	conn, err := w.s.held.Acquire(w.ctx)
	if err != nil {
		return nil, err
	}
	listeners := maxListeners + 1
	if !w.s.held.Pooled() { // ⚑ behind a pooler LISTEN would succeed, and no notification would come
		ctx, cancel := context.WithTimeout(w.ctx, answerLimit)
		defer cancel()
		listeners, err = listen(ctx, conn.Conn(), w.channel)
	}
	polls := err == nil && listeners > maxListeners
	w.mu.Lock()
	w.polls = polls
	w.mu.Unlock()
	if err == nil && !polls {
		return conn, nil
	}
	w.s.held.Discard(conn)
	return nil, err
}

// maxListeners is the most drivers of one database that listen. The others poll. ⚑ Each notification
// wakes the connections of all listeners.
const maxListeners = 50

// listen returns the number of drivers that listen, with this one. Each of them holds a shared advisory
// lock, so any role can count them.
func listen(ctx context.Context, conn *pgx.Conn, channel string) (listeners int, err error) {
	if _, err = conn.Exec(ctx, `LISTEN `+asksChannel+`; LISTEN "`+channel+`"`, pgx.QueryExecModeSimpleProtocol); err != nil {
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

// receive delivers messages until the connection breaks.
func (w *wakes) receive(conn *pgx.Conn) {
	for {
		waiting, cancel := context.WithTimeout(w.ctx, silence)
		message, err := conn.WaitForNotification(waiting)
		cancel()
		if pgconn.Timeout(err) && w.ctx.Err() == nil {
			ping, cancel := context.WithTimeout(w.ctx, answerLimit)
			err = conn.Ping(ping)
			cancel()
		}
		if err != nil {
			return
		}
		switch {
		case message == nil:
		case message.Channel == asksChannel:
			w.asked(message.Payload)
		default:
			w.deliver(message.Payload)
		}
	}
}

// settle ends the present attempt to listen. After an interruption all waiters ask, because messages may
// be lost. After a failure they poll.
func (w *wakes) settle(err error, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connection.err = err
	close(w.connection.done)
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

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
