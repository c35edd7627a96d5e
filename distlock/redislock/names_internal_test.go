package redislock

import (
	"fmt"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
)

func TestNames_keepsTheLatest(t *testing.T) {
	var n names
	name := func(i int) driver.Name { return driver.Name{Namespace: "n", Key: fmt.Sprint(i)} }
	for i := range 8 * maxNames {
		if n.note(name(i), true); !n.has(name(i)) {
			t.Fatalf("name %d is not in the set", i)
		}
	}
	kept := 0
	for i := range 8 * maxNames {
		if n.has(name(i)) {
			kept++
		}
	}
	if kept < maxNames*9/10 || kept > maxNames {
		t.Errorf("%d names", kept)
	}
	last, other := name(8*maxNames-1), 8*maxNames
	for n.slot(name(other)) != n.slot(last) {
		other++
	}
	if n.note(name(other), false); !n.has(last) {
		t.Error("another name has taken the last one out of the set")
	}
	if n.note(last, false); n.has(last) {
		t.Error("a name that is busy no more")
	}
}
