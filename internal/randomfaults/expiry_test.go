package randomfaults

import (
	"context"
	"fmt"
)

// expire begins a session with a turn of two Saves. Half of these sessions are deleted between the
// two, as an idle session expires. The history may end after the first Save, but never lacks it.
func (h *hand) expire() {
	if h.client == nil || h.config.Broken != "" {
		return
	}
	session := fmt.Sprint("expiry-", h.next())
	ctx, cancel := h.limited()
	defer cancel()
	ctx = withSession(ctx, session)
	memory := h.room.now().memory
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
			n, err := h.client.Del(ctx, sessionKeyOf(session)).Result()
			deleted = err == nil && n == 1
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
