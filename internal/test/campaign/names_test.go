package campaign

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/belugalock/belugalock/distlock"
)

// hostileNames and hostileContent are no faults that strike: part of the work has them all the time.
var (
	hostileNames   = &fault{name: "hostile names", on: everywhere}
	hostileContent = &fault{name: "hostile content", on: everywhere}
)

// strangeEnds are what the names of some locks and sessions end with: what programs, protocols and
// shells take for something else.
var strangeEnds = []string{
	"{", "}", "{}", "}{", "{a}b", "%", "%7D", "%25", ":lock", "}:lock", ":{x}:fence", ":", "*", "?[a-z]", `\`, `"'`, "$(id)", " ",
	"' .. redis.call('FLUSHALL') .. '", "+OK", "$-1", "e\u0301", "\u2028", "\U0001F40B", strings.Repeat("x", 900),
}

// strangeEnd is that of every other name of an epoch.
func strangeEnd(epoch, n int) string {
	if (epoch+n)%2 == 0 {
		return ""
	}
	return strangeEnds[(7*epoch+n)%len(strangeEnds)]
}

// strange reports whether a name has such an end.
func strange(key string) bool {
	return len(key) > 100 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-/") != ""
}

// forbidden are names that no lock has.
var forbidden = []string{
	"", "\x00", "a\x00b", "a\r\nb", "\x7f", "\xff\xfe", "\xed\xa0\x80", strings.Repeat("x", 1025), strings.Repeat("x", 64<<10),
}

// forbiddenWork asks for a lock by a name that none has.
func (h *hand) forbiddenWork() {
	key := forbidden[h.rng.IntN(len(forbidden))]
	if h.config.Broken == anyName {
		key = hex.EncodeToString([]byte(key[:min(len(key), 10)])) + "/"
	}
	lease, err := h.room.now().locker.TryAcquire(context.Background(), key)
	if err == nil && lease != nil {
		_ = lease.Release(context.Background())
	}
	if !errors.Is(err, distlock.ErrInvalidKey) && !errors.Is(err, distlock.ErrClosed) {
		h.tell(&said{What: sayWrong, Text: fmt.Sprintf("a lock by the name %.40q: %v", key, err)})
	}
}
