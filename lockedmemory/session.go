package lockedmemory

import "context"

// KeyFunc returns the session of a call, from its context. If it returns an error or "", writes and Turn
// fail with distlock.ErrInvalidKey. Two sessions must have two keys: join parts, as tenant and session,
// with fmt.Sprintf("%q/%q", …).
type KeyFunc func(ctx context.Context) (string, error)

// FixedKey is the KeyFunc of a memory of one session.
func FixedKey(key string) KeyFunc {
	return func(context.Context) (string, error) { return key, nil }
}

type sessionKey struct{}

// WithSession returns a context with the ID of a session, for [SessionKey].
func WithSession(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, sessionKey{}, id)
}

// SessionKey is the [KeyFunc] of [WithSession]. Without an ID, it returns "".
func SessionKey(ctx context.Context) (string, error) {
	id, _ := ctx.Value(sessionKey{}).(string)
	return id, nil
}
