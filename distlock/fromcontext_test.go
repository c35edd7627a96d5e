package distlock_test

import (
	"context"
	"testing"

	"github.com/belugalock/belugalock/distlock"
)

// A context shows a lease to its own Locker alone, for its own key: two Lockers may have two backends
// or namespaces.
func TestFromContext_isOfItsLockerAndKey(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.twin().locker(t, distlock.Options{}), s.twin().locker(t, distlock.Options{Namespace: "other"})
		lease := mustAcquire(t, l)
		check := func(what string, ctx context.Context) {
			if own, ok := l.FromContext(ctx, key); !ok || own != lease {
				t.Errorf("%s: its own lease: %v, %t", what, own, ok)
			}
			if _, ok := other.FromContext(ctx, key); ok {
				t.Errorf("%s: the lease of another Locker", what)
			}
			if _, ok := l.FromContext(ctx, key+"?"); ok {
				t.Errorf("%s: the lease of another key", what)
			}
		}
		check("Lease.Context", lease.Context())
		if err := lease.Guard(t.Context(), func(ctx context.Context) error { check("Guard", ctx); return nil }); err != nil {
			t.Error(err)
		}
		theirs, err := other.Acquire(lease.Context(), key)
		if err != nil {
			t.Fatalf("another Locker has to wait for this one's lease: %v", err)
		}
		mustRelease(t, theirs)
		mustRelease(t, lease)
	})
}
