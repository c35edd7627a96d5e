package main

import (
	"strconv"
	"strings"
	"testing"
)

func TestRelease_asksAndNeedsTheToken(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		d := open(t, url)
		holder := acquire(t, d, "apple", "host-1:10")
		answered := func(answer, token string) result {
			return lockctlWith(t.Context(), strings.NewReader(answer), "release", "apple", "--token", token, "--url", url)
		}
		for _, wrong := range []int64{1, holder.reply.Fence - 1, holder.reply.FenceEnd + 1} {
			answered("y\n", strconv.FormatInt(wrong, 10)).is(t, exitFinding, "the lock has the token "+token(holder), "nothing was changed")
		}
		for _, no := range []string{"", "n\n", "\n", "yess\n", "no"} {
			answered(no, token(holder)).is(t, exitFinding, "host-1:10", "rejects each write", "End this lock? [y/N]", "not confirmed")
		}
		lockctl(t, "show", "apple", "--url", url).is(t, 0, "host-1:10")
		answered("Y\n", token(holder)).is(t, 0, "Released. The lock of host-1:10 under token "+token(holder))
		lockctl(t, "show", "apple", "--url", url).is(t, exitFinding, "(free)")
		answered("y\n", token(holder)).is(t, exitFinding, "the lock is free")
		holder = acquire(t, d, "apple", "host-1:10")
		lockctl(t, "release", "apple", "--token", token(holder), "--yes", "-o", "json", "--url", url).
			prints(t, 0, "{\n  \"key\": \"apple\",\n  \"released\": true,\n  \"token\": TOKEN\n}")
	})
}
