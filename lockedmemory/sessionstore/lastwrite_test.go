package sessionstore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// answering is a driver whose writes have the given answers, one after the other, and then are done. It
// notes lastwrite.Is of each call.
func answering(answers []answer) (d *scripted, ends *[]bool) {
	ends = new([]bool)
	return &scripted{write: func(ctx context.Context, w storedriver.Write, _ effect) (storedriver.Verdict, error) {
		*ends = append(*ends, lastwrite.Is(ctx, w.Lease))
		if len(*ends) > len(answers) {
			return storedriver.Verdict{}, nil
		}
		next := answers[len(*ends)-1]
		return next.verdict, next.err
	}}, ends
}

type answer struct {
	verdict storedriver.Verdict
	err     error
}

// The first copy of a Save may have been stored. Other leases then clear or trim what it has stored, and
// the store refuses the next copy. Outside a turn, the first copy may have released the lock. In a turn,
// the lease is lost: its process was paused for longer than the TTL.
func TestSave_O_refusedCopy_unknown(t *testing.T) {
	replayed := func(o storedriver.Outcome) answer {
		return answer{verdict: storedriver.Verdict{Outcome: o, Replayed: true}}
	}
	silence := answer{err: fmt.Errorf("%w: %w", driver.ErrReplayed, driver.ErrTemporary)}
	for name, answers := range map[string][]answer{
		"stale":                {replayed(storedriver.Stale)},
		"unowned":              {replayed(storedriver.Unowned)},
		"gone":                 {replayed(storedriver.Gone)},
		"taken":                {replayed(storedriver.Taken)},
		"conflict":             {replayed(storedriver.Conflict)},
		"of a newer driver":    {{verdict: storedriver.Verdict{Outcome: 99}}},
		"stale after silence":  {silence, {verdict: storedriver.Verdict{Outcome: storedriver.Stale}}},
		"stale, silence first": {silence, silence, {verdict: storedriver.Verdict{Outcome: storedriver.Stale}}},
	} {
		for where, before := range map[string][]answer{
			"": nil, ", in a turn": {}, ", later in a turn": {{}},
		} {
			t.Run(name+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d, ends := answering(append(before, answers...))
					memory := memoryOver(t, d, &d.Driver)
					var err error
					save := func(ctx context.Context) error {
						for range before {
							must(t, memory.Save(ctx, "first", ""))
						}
						err = memory.Save(ctx, "q", "a")
						return nil
					}
					if before == nil {
						_ = save(t.Context())
					} else {
						must(t, memory.Turn(t.Context(), save))
					}
					isExactly(t, "Save", err, distlock.ErrOutcomeUnknown)
					if len(*ends) != len(before)+len(answers) || (*ends)[0] != (before == nil) {
						t.Errorf("the calls end the lease: %t", *ends)
					}
				})
			})
		}
	}
}

// A copy that is answered is as good as the first one.
func TestSave_answeredCopy_itsVerdict(t *testing.T) {
	for _, outcome := range []storedriver.Outcome{storedriver.Done, storedriver.Known} {
		d, _ := answering([]answer{{verdict: storedriver.Verdict{Outcome: outcome, Replayed: true}}})
		memory := memoryOver(t, d, &d.Driver)
		if err := memory.Save(t.Context(), "q", "a"); err != nil {
			t.Errorf("outcome %d: %v", outcome, err)
		}
	}
}
