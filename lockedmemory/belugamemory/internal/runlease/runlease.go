// Package runlease passes the lease of a Runner's run to the memories in it.
package runlease

import (
	"context"

	"github.com/belugalock/belugalock/distlock"
)

type key struct{}

// With returns a context in which lease is that of the innermost run.
func With(ctx context.Context, lease *distlock.Lease) context.Context {
	return context.WithValue(ctx, key{}, lease)
}

// Of returns the lease of the innermost run around ctx, or nil.
func Of(ctx context.Context) *distlock.Lease {
	lease, _ := ctx.Value(key{}).(*distlock.Lease)
	return lease
}
