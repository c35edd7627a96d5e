package redisstore_test

import (
	"strings"
	"testing"
)

// The mark outlives the log. The pinned exchanges in the mark do not.
func TestPins_expiredLog_forgotten(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	for name, end := range map[string]func(){
		"expiry": func() { must(t, s.client.Del(t.Context(), s.log()).Err()) },
		"Clear":  func() { must(t, s.memory.Clear(t.Context())) },
		"Delete": func() { must(t, s.memory.Delete(t.Context())) },
	} {
		must(t, s.memory.Save(t.Context(), "q", "a"))
		last, err := s.memory.Last(t.Context(), 1)
		must(t, err)
		last[0].Pinned = true
		must(t, s.memory.Replace(t.Context(), last[0].Place, last[0].Place, last[0]))
		pinned := func() string {
			mark := s.client.Get(t.Context(), s.mark()).Val()
			return mark[strings.LastIndexByte(mark, ':')+1:]
		}
		last, err = s.memory.Last(t.Context(), 1)
		must(t, err)
		if got := pinned(); got != last[0].Place.String()+"," {
			t.Fatalf("the mark has %q, want %s", got, last[0].Place)
		}
		end()
		if got := pinned(); got != "" && name != "expiry" {
			t.Errorf("after %s, the mark has %q", name, got)
		}
		must(t, s.memory.Save(t.Context(), "q", "a"))
		if got := pinned(); got != "" {
			t.Errorf("after %s and a Save, the mark has %q", name, got)
		}
		must(t, s.memory.Clear(t.Context()))
	}
}
