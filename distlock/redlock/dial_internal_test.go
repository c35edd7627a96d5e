package redlock

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithDialPause_deadNodeIsDialedOncePerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, refused := 0, errors.New("connection refused")
		dial := withDialPause(func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, refused
		})
		for range 5 {
			if _, err := dial(t.Context(), "tcp", "node"); err != refused {
				t.Fatalf("got %v, want %v", err, refused)
			}
		}
		if dials != 1 {
			t.Errorf("%d dials within the pause, want 1", dials)
		}
		time.Sleep(dialPause + time.Millisecond)
		_, _ = dial(t.Context(), "tcp", "node")
		if dials != 2 {
			t.Errorf("%d dials after the pause, want 2", dials)
		}
	})
}

func TestWithDialPause_callerThatLeavesIsNoFailure(t *testing.T) {
	dials := 0
	dial := withDialPause(func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials++
		return nil, ctx.Err()
	})
	left, leave := context.WithCancel(t.Context())
	leave()
	_, _ = dial(left, "tcp", "node")
	if _, err := dial(t.Context(), "tcp", "node"); err != nil || dials != 2 {
		t.Errorf("%d dials, want 2; %v", dials, err)
	}
}
