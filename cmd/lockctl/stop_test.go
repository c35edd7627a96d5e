package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/lockedmemory"
)

func TestStop_asksAndClosesMessages(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		c := newChat(t, url, "chat-1")
		stop := func(answer string, more ...string) result {
			return lockctlWith(t.Context(), strings.NewReader(answer), append([]string{"stop", "chat-1", "--url", url}, more...)...)
		}
		answers := func(id string, want error, fn func(ctx context.Context) ([][]byte, error)) {
			t.Helper()
			if _, err := c.Answer(t.Context(), id, []byte("question"), fn); !errors.Is(err, want) {
				t.Errorf("the answer to %s: %v, want %v", id, err, want)
			}
		}
		stop("y\n").is(t, exitFinding, "the lock is free, so no turn runs; nothing was changed")
		stop("y\n", "--id", "early").is(t, 0, "(free)", "the message is never answered", "Stop it? [y/N]", "Stopped. Nothing more of it is stored.")
		answers("early", lockedmemory.ErrStopped, nil)
		answers("running", lockedmemory.ErrStopped, func(context.Context) ([][]byte, error) {
			stop("n\n").is(t, exitFinding, "holder", "not confirmed; nothing was changed")
			stop("", "--yes", "-o", "json").prints(t, 0, "{\n  \"id\": \"\",\n  \"session\": \"chat-1\",\n  \"stored\": false\n}")
			return [][]byte{[]byte("too late")}, nil
		})
		stopped := make(chan result, 1)
		answers("graceful", nil, func(ctx context.Context) ([][]byte, error) {
			go func() { stopped <- stop("", "--id", "graceful", "--grace", "1m", "--yes") }()
			<-ctx.Done()
			return [][]byte{[]byte("the first words")}, nil
		})
		(<-stopped).is(t, 0, "The answer was stored first.")
		lockctl(t, "session", "show", "chat-1", "--text", "--url", url).is(t, 0, "graceful", "the first words")
	})
}
