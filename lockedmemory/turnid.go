package lockedmemory

import "context"

type turnIDKey struct{}

// WithTurnID returns a context under which a Save has the ID id. A store that knows of IDs, see [TurnID], stores the Save once, however
// often it is repeated under its ID: after an error that left open whether it was stored, or because the message that it answers was
// delivered again, perhaps to another process.
//
// The caller chooses the ID, and keeps it over retries: the ID of the message that is answered is a good one, a
// number made anew for each try is none. It names one Save. A turn with several Saves gives each an ID of its own,
// such as the message's with a number behind it; a store may refuse other content under an ID that it has seen. An ID is that of
// a session: two sessions may have the same.
//
// Without an ID, every Save is another one. An empty ID is not the same as none: it is a mistake, as of a message that has come without its
// ID, and it is for the store to refuse the Save. [LockedMemory] only passes the ID on, and a memory that does not know of
// IDs stores a repeated Save twice.
func WithTurnID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, turnIDKey{}, id)
}

// TurnID returns the ID that [WithTurnID] has given to the calls under ctx, for an inner store. It reports whether one was given: an
// ID that was given and is empty is the caller's mistake, which a store refuses.
func TurnID(ctx context.Context) (id string, ok bool) {
	id, ok = ctx.Value(turnIDKey{}).(string)
	return id, ok
}
