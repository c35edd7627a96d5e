package redislock

import (
	"fmt"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
)

func TestNames_keepsTheLatest(t *testing.T) {
	var n names
	name := func(i int) driver.Name { return driver.Name{Namespace: "n", Key: fmt.Sprint(i)} }
	for i := range 2 * maxNames {
		n.note(name(i), true)
		if !n.has(name(i)) || len(n.all) > maxNames {
			t.Fatalf("%d names; the last is one of them: %t", len(n.all), n.has(name(i)))
		}
	}
	if len(n.all) != maxNames {
		t.Errorf("%d names", len(n.all))
	}
	last := name(2*maxNames - 1)
	if n.note(last, false); n.has(last) {
		t.Error("a name that is busy no more")
	}
}
