package driver

import "context"

// Asker is implemented by a Driver whose holders can be asked to end their work. The grant lasts on: a
// holder that ignores the ask keeps the name for a TTL at most, because its Locker renews no more.
// NotifyAsks fails with errors.ErrUnsupported if renewals alone tell of asks.
type Asker interface {
	// Ask asks the holder of the name, if the grant shows the token Fence, or is for the Work. It gives the
	// grant a higher shown token, that of the ask: at least Floor, and above every token that was reserved
	// before. Later grants have higher tokens. The owner keeps its own token, and its remaining time. An Ask
	// of a free name reserves a token, too. Every other Ask changes nothing, so without Fence and Work it
	// looks. A repetition asks again.
	Ask(ctx context.Context, req AskRequest) (AskReply, error)

	// NotifyAsks calls asked with the owner of each grant of the namespace that is asked, until stop is called,
	// and may call it with other owners that are asked. No caller relies on a call: the reply to the next Extend
	// shows the Ask, too. asked returns at once, and calls no driver. ctx bounds NotifyAsks alone. What it
	// starts ends with Close.
	NotifyAsks(ctx context.Context, namespace string, asked func(owner string)) (stop func(), err error)
}

// AskRequest asks a holder to end its work.
type AskRequest struct {
	Name  Name
	Fence int64  // the shown token of the grant; 0: of none
	Work  string // of the grant; empty: of none
	// Floor is the least token of the ask. A floor more than FloorAhead ahead of the backend's clock fails
	// with ErrFloor.
	Floor int64
}

// AskReply answers an AskRequest.
type AskReply struct {
	// Asked says that this call has asked the holder. Fence is then the token of the ask.
	Asked bool
	// Fence is the shown token of a held name, and the reserved token of a free name.
	Fence int64
	// Own is the token that the owner of a held name has. ⚑ An Ask before may have raised the shown one.
	Own int64
	// State describes the name before the call.
	State State
}
