package sessionstore

import (
	"context"
	"fmt"

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

// Begin is [Store.Answered] for an Answer that has taken the lease. If the message is open, the first access under
// each further token of the lease reads the ID first.
func (s *Store[M, D]) Begin(ctx context.Context, id string) (exchange lockedmemory.Exchange[M], known bool, err error) {
	exchange, known, err = s.Answered(ctx, id)
	switch lease, ok := lockedmemory.Lease(ctx); {
	case ok && known: // ⚑ the lease is for other messages, which this one does not refuse
		answerOf(lease).Store(nil)
	case ok && err == nil:
		answerOf(lease).Store(&id)
	}
	return exchange, known, err
}

// HashOf is storedriver.HashID of an ID that is valid.
func (*Store[M, D]) HashOf(id string) (string, error) {
	return storedriver.HashID(id), validID(opAnswered, id)
}

// CloseMessage is Close of storedriver.Driver, for lockedmemory. stored says that the Outcome is Known, and
// decided that it is not Done.
func (s *Store[M, D]) CloseMessage(ctx context.Context, id, by string, below, mark, stop int64,
) (stored, decided bool, before int64, err error) {
	r, err := s.request(ctx, opClose)
	if err != nil {
		return false, false, 0, err
	}
	v, err := repeat(ctx, 0, func() (storedriver.Verdict, error) {
		return s.driver.Close(ctx, storedriver.CloseRequest{Session: r.session, ID: id, By: by, Below: below, Mark: mark, Stop: stop})
	})
	return v.Outcome == storedriver.Known, v.Outcome != storedriver.Done, v.Mark.Fence, r.callError(err)
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
