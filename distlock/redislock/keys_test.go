package redislock

import (
	"strings"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
)

// All keys of a lock must fall into one slot of a Cluster: what counts is the text between the first brace and the next
// closing one, unless it is empty.
func TestKeys_shareOneHashTag(t *testing.T) {
	tags := make(map[string]string)
	for _, key := range []string{"k", "}", "}}", "{", "{}", "a}b", "a{b}c", "%7D", "%", "a:b", "}:lock", "}{"} {
		keys := keysOf(driver.Name{Namespace: "n:m", Key: key})
		var tag string
		for _, full := range []string{keys.lock(), keys.fence(), keys.void("0123")} {
			_, rest, _ := strings.Cut(full, "{")
			inner, _, closed := strings.Cut(rest, "}")
			if !closed || inner == "" || tag != "" && inner != tag {
				t.Errorf("key %q: %q has the hash tag %q, another has %q", key, full, inner, tag)
			}
			tag = inner
		}
		if other, taken := tags[tag]; taken {
			t.Errorf("keys %q and %q share the hash tag %q", key, other, tag)
		}
		tags[tag] = key
	}
}
