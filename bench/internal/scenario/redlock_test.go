package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/clock"
	"github.com/belugalock/belugalock/bench/internal/subject"
)

func TestOvertakings_laterCallsOfOtherProcesses(t *testing.T) {
	member := func(unfinished time.Duration, calls ...[2]clock.Time) (m crowdMember) {
		for _, c := range calls {
			m.Waits, m.Granted = append(m.Waits, c[1].Sub(c[0])), append(m.Granted, c[1])
		}
		m.Unfinished = unfinished
		return m
	}
	got := overtakings([]crowdResult{
		{End: 100, Members: []crowdMember{member(0, [2]clock.Time{0, 50}, [2]clock.Time{60, 70}), member(0, [2]clock.Time{5, 20})}},
		{End: 100, Members: []crowdMember{member(60, [2]clock.Time{10, 30}), member(0, [2]clock.Time{35, 40})}},
	})
	// By call: 0 is overtaken by 10 and 35; 5 and 10 by none; 35 by none; 40, without an end, by
	// 60; 60 by none.
	if want := []int{2, 0, 0, 0, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("overtaken %v, want %v", got, want)
	}
}

func TestQuorum_oneNodeOfFiveDiffers(t *testing.T) {
	q := Quorum{Nodes: []string{"a", "b", "c", "d", "e"}, Dead: "f", Hung: "g"}
	for name, want := range map[string]string{
		subject.OursQuorum: "a,b,c,d,e", subject.RedsyncQuorum: "a,b,c,d,e", subject.OursOneDead: "a,b,c,d,f", subject.OursOneHung: "a,b,c,d,g",
	} {
		if got := q.addrs(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
