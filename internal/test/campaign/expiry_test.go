package campaign

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/lockedmemory"
)

// expire begins a session with a turn of two Saves. Half of these sessions are deleted between the
// two, as an idle session expires. The history may end after the first Save, but never lacks it.
func (h *hand) expire() {
	if h.config.Broken != "" {
		return
	}
	session := fmt.Sprint("expiry-", h.next())
	ctx, cancel := h.limited()
	defer cancel()
	ctx = lockedmemory.WithSession(ctx, session)
	memory := h.memory
	save := func(ctx context.Context, n int) error {
		question, answer := exchange(n, "expiry", 0, 0)
		return memory.Save(ctx, question, answer)
	}
	deleted := false
	err := memory.Turn(ctx, func(ctx context.Context) error {
		if err := save(ctx, 1); err != nil {
			return err
		}
		if h.rng.IntN(2) == 0 {
			deleted = h.drop(ctx, session)
		}
		return save(ctx, 2)
	})
	h.ended(err, err == nil)
	switch history, failed := memory.Load(ctx, ""); {
	case failed != nil:
		h.ended(failed, false)
	case len(history) > 0 && history[0].Turn != 1:
		h.tell(&said{What: sayWrong, Text: fmt.Sprintf("a session that was deleted in a turn (%t) has the end of the turn alone", deleted)})
	}
}

// drop deletes a session behind the back of its store, and reports whether it has.
func (h *hand) drop(ctx context.Context, session string) bool {
	if h.pool == nil {
		n, err := h.client.Del(ctx, sessionKeyOf(session)).Result()
		return err == nil && n == 1
	}
	tag, err := h.pool.Exec(ctx, "UPDATE belugalock.session SET kept_until = clock_timestamp() WHERE name = $1", session)
	return err == nil && tag.RowsAffected() == 1
}
