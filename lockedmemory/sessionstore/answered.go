package sessionstore

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// Answered returns the exchanges that are stored under a turn ID, in order, and the highest number stored
// under it. Ask before the model is paid for: if stored is not 0, the message was answered before.
//
// If exchanges has fewer than stored, the others were trimmed, cleared or replaced under no ID, or have
// expired with the session. stored is 0 if nothing was stored under the ID within
// Retention.RememberTurns.
//
// In a turn, the answer stays true until the turn ends. Without a lease, another turn may store the
// answer at once. The errors are those of [Store.Load], and lockedmemory.ErrTurnID for an ID that is
// empty or longer than 512 bytes.
func (s *Store[M, D]) Answered(ctx context.Context, id string) (
	exchanges []lockedmemory.Exchange[M], stored int, err error) {
	if id == "" || len(id) > lockedmemory.MaxTurnID {
		return nil, 0, fmt.Errorf("sessionstore: %s: %w: it has %d bytes, 1 to %d are allowed: "+
			"use the ID of the message, or a hash of that ID",
			opAnswered, lockedmemory.ErrTurnID, len(id), lockedmemory.MaxTurnID)
	}
	exchanges, err = readWhole(ctx, s, opAnswered, func(r *reading) (found []lockedmemory.Exchange[M]) {
		for page := range r.pages(driver.Read{ID: id, Named: true}, unlimited) {
			found = append(found, s.decode(r, page, nil)...)
		}
		stored = r.stored
		return present(r, found)
	})
	if err != nil {
		return nil, 0, err
	}
	return exchanges, stored, nil
}
