package lockedmemory

import "context"

type turnIDKey struct{}

// WithTurnID names the Save that is made with the context.
func WithTurnID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, turnIDKey{}, &id)
}

// TurnID returns what WithTurnID has set.
func TurnID(ctx context.Context) (id string, ok bool) {
	if id, _ := ctx.Value(turnIDKey{}).(*string); id != nil {
		return *id, true
	}
	return "", false
}
