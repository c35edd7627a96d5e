package history

import (
	"context"
	"time"
)

// Place is a place in a turn at which an instance can be killed or paused.
type Place string

// The places.
const (
	Write    Place = "write"    // the server does not have the write yet, and nothing can call it back
	Answered Place = "answered" // the server has the write, and the instance does not know that yet
)

// hitch is how much longer a turn takes at its place. The instance renews its lock in that time.
const hitch = 500 * time.Millisecond

type key struct{}

type stop struct {
	place   Place
	reached func()
}

// WithHitch returns a context for a turn that calls reached at a place, and takes longer there.
// Without a place it does neither.
func WithHitch(ctx context.Context, place Place, reached func()) context.Context {
	return context.WithValue(ctx, key{}, stop{place, reached})
}

// At is called wherever there may be a hitch.
func At(ctx context.Context, place Place) {
	if s, _ := ctx.Value(key{}).(stop); s.place == place {
		s.reached()
		time.Sleep(hitch)
	}
}
