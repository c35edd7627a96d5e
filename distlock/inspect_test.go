package distlock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/belugalock/belugalock/distlock"
)

func TestPing_readsAndReportsTheBackend(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		if err := l.Ping(t.Context()); err != nil || s.state(t).Held {
			t.Errorf("Ping: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Ping(gone); !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Ping for a caller that has left: %v", err)
		}
		s.Inject(cutOff(errBroken))
		if err := l.Ping(t.Context()); !errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Ping of a broken backend: %v", err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Ping(t.Context()); !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("Ping after Close: %v", err)
		}
	})
}
