package sessionstore

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Answered returns the exchange that is stored under an ID. known says that one was stored within
// Retention.RememberIDs. With lockedmemory.ErrAnswerGone, known is true, and the exchange was trimmed,
// cleared or replaced under no ID, or has expired with the session.
//
// In a turn, the answer stays true until the turn ends. Without a lease, another turn may store the
// exchange at once. Further errors: lockedmemory.ErrInvalidID, [ErrChanged] and [EntryError].
func (s *Store[M, D]) Answered(ctx context.Context, id string) (
	exchange lockedmemory.Exchange[M], known bool, err error) {
	if err := validID(opAnswered, id); err != nil {
		return exchange, false, err
	}
	found, err := readWhole(ctx, s, opAnswered, func(r *reading) (found []lockedmemory.Exchange[M]) {
		for page := range r.pages(storedriver.Read{ID: id}, 1) {
			found = s.decode(r, page, nil)
		}
		known = r.known
		return found
	})
	switch {
	case err != nil:
		return exchange, false, err
	case known && len(found) == 0:
		return exchange, true, fmt.Errorf("sessionstore: %s: %w: it was trimmed, cleared or replaced; nothing was written",
			opAnswered, lockedmemory.ErrAnswerGone)
	case known:
		exchange = found[0]
	}
	return exchange, known, nil
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
