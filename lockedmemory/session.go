package lockedmemory

import "context"

// KeyFunc returns the session that a call belongs to, from its context. It is called at least once per
// operation. If it returns an error or "", writes and Turn fail with distlock.ErrInvalidKey. Two sessions
// must have two keys: join parts, as tenant and session, with fmt.Sprintf("%q/%q", …).
type KeyFunc func(ctx context.Context) (string, error)

// FixedKey is the KeyFunc of a memory of one session.
func FixedKey(key string) KeyFunc {
	return func(context.Context) (string, error) { return key, nil }
}

type sessionKey struct{}

// WithSession returns a context for calls of the session with an ID, of which [SessionKey] makes the key.
func WithSession(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, sessionKey{}, id)
}

// SessionKey is a [KeyFunc]: it returns the ID of [WithSession], or "" without one.
func SessionKey(ctx context.Context) (string, error) {
	id, _ := ctx.Value(sessionKey{}).(string)
	return id, nil
}
