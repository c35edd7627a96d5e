package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/lockedmemory"
)

func TestSession_inbox(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		inbox := func(answer string, more ...string) result {
			t.Helper()
			return lockctlWith(t.Context(), strings.NewReader(answer), append([]string{"session", "inbox", "chat-1", "--url", url}, more...)...)
		}
		inbox("").is(t, exitFinding, "nothing is pending: check the name of the session")
		c := newChat(t, url, "chat-1")
		for _, id := range []string{"m\n1", "m2"} {
			must(t, c.Put(t.Context(), id, []byte("personal data")))
		}
		shown := inbox("").is(t, 0, `m\n1`, "m2", "13").out
		if strings.Contains(shown, "personal") {
			t.Errorf("the texts are shown:\n%s", shown)
		}
		inbox("", "-o", "json").is(t, 0, `"pending": [`, `"bytes": 13`, `"stopped": false`)
		inbox("n\n", "--stop").is(t, exitFinding, "Stop them? [y/N]", "not confirmed; nothing was changed")
		inbox("", "--stop", "--yes").is(t, 0, "Stopped. None of them is answered.")
		inbox("").is(t, exitFinding, "nothing is pending")
		if _, err := c.Answer(t.Context(), "m2", nil, func(context.Context) ([][]byte, error) { return nil, nil }); !errors.Is(err, lockedmemory.ErrStopped) {
			t.Errorf("a message that was stopped: %v", err)
		}
	})
}
