package sessionstore

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Answered returns the exchange that is stored under an ID. known says that one was stored within
// Retention.RememberIDs. With lockedmemory.ErrAnswerGone, known is true: the exchange was trimmed, cleared or
// replaced under no ID, or has expired with the session. In a turn, the answer stays true until the turn
// ends. Further errors: lockedmemory.ErrInvalidID and [EntryError].
func (s *Store[M, D]) Answered(ctx context.Context, id string) (exchange lockedmemory.Exchange[M], known bool, err error) {
	if err := validID(opAnswered, id); err != nil {
		return exchange, false, err
	}
	r, err := s.pageReader(ctx, opAnswered)
	if err != nil {
		return exchange, false, err
	}
	page, err := r.readPage(storedriver.Read{ID: id, Limit: 1})
	if err != nil {
		return exchange, false, err
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

// maxID is the longest ID of a message, in bytes.
const maxID = 512

func validID(op operation, id string) error {
	if id != "" && len(id) <= maxID {
		return nil
	}
	return fmt.Errorf("sessionstore: %s: %w: it has %d bytes, 1 to %d are allowed; nothing was written: "+
		"use the ID of the message, or a hash of that ID", op, lockedmemory.ErrInvalidID, len(id), maxID)
}
