package sessionstore

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Answered returns the exchange that is stored under an ID. known says that one was stored within
// Retention.RememberIDs, or that the message is closed: with lockedmemory.ErrStopped. With
// lockedmemory.ErrAnswerGone, known is true: the exchange was trimmed, cleared or replaced, or has expired.
// In a turn, the answer stays true until the turn ends. Further errors: lockedmemory.ErrInvalidID and
// [EntryError].
func (s *Store[M, D]) Answered(ctx context.Context, id string) (exchange lockedmemory.Exchange[M], known bool, err error) {
	if err := validID(opAnswered, id); err != nil {
		return exchange, false, err
	}
	r, err := s.pageReader(ctx, opAnswered)
	if err != nil {
		return exchange, false, err
	}
	r.id = id
	page, err := r.readPage(storedriver.Read{ID: id, Limit: 1})
	if err != nil {
		return exchange, page.Outcome == storedriver.Stopped || page.Outcome == storedriver.Superseded, err
	}
	r.noteFirst(page)
	found := s.decode(r, page.Entries, nil)
	switch {
	case r.err != nil || !page.Known:
		return exchange, false, r.err
	case len(found) == 0:
		return exchange, true, fmt.Errorf("sessionstore: %s: %w: it was trimmed, cleared or replaced; nothing was written",
			opAnswered, lockedmemory.ErrAnswerGone)
	}
	return found[0], true, nil
}

// Begin is [Store.Answered] for an Answer that has taken the lease. The first access under each further token
// of the lease reads the ID first.
func (s *Store[M, D]) Begin(ctx context.Context, id string) (exchange lockedmemory.Exchange[M], known bool, err error) {
	if lease, ok := lockedmemory.Lease(ctx); ok {
		fencing.Attach(lease, answerKey{}, func() any { return id })
	}
	return s.Answered(ctx, id)
}

// CloseMessage is for lockedmemory's Stop. See Close of storedriver.Driver.
func (s *Store[M, D]) CloseMessage(ctx context.Context, hash string, mark, stop int64) (stored bool, before int64, err error) {
	reply, err := s.close(ctx, storedriver.CloseRequest{ID: hash, Mark: mark, Stop: stop})
	return reply.ID == storedriver.Known, reply.Mark, err
}

// Arrive makes a message the newest of its session, if it has not arrived before. decided says that it is
// answered or closed.
func (s *Store[M, D]) Arrive(ctx context.Context, id string) (decided bool, err error) {
	if err := validID(opClose, id); err != nil {
		return false, err
	}
	reply, err := s.close(ctx, storedriver.CloseRequest{By: storedriver.HashID(id), Arrive: true})
	return reply.By != storedriver.Done, err
}

// Supersede closes a message for a newer one, by, while the mark is below a token. hash and by are hashes of
// IDs, or empty. decided says that by is answered or closed, perhaps by this call. over says that
// nothing is left to interrupt: the message is answered, or a later lease has begun.
func (s *Store[M, D]) Supersede(ctx context.Context, hash, by string, below int64) (decided, over bool, err error) {
	reply, err := s.close(ctx, storedriver.CloseRequest{ID: hash, By: by, Superseded: true, Below: below})
	return reply.By != storedriver.Done, reply.ID == storedriver.Known || reply.ID == storedriver.Later, err
}

func (s *Store[M, D]) close(ctx context.Context, c storedriver.CloseRequest) (reply storedriver.CloseReply, err error) {
	r, err := s.request(ctx, opClose)
	if err != nil {
		return reply, err
	}
	if err = ctx.Err(); err != nil {
		err = fmt.Errorf("%w: %w", driver.ErrNotDone, err)
	} else {
		c.Session = r.session
		reply, err = s.driver.Close(ctx, c)
	}
	return reply, r.callError(err)
}

// maxID is the longest ID of a message, in bytes.
const maxID = 512

func validID(op operation, id string) error {
	if id != "" && len(id) <= maxID {
		return nil
	}
	return fmt.Errorf("sessionstore: %s: %w: it has %d bytes, 1 to %d are allowed; nothing was written: "+
		"use the ID of the message, or a hash of that ID", op, lockedmemory.ErrInvalidID, len(id), maxID)
}
