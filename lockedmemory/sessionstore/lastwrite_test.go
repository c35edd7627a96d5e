package sessionstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock"
	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// answering is a driver whose Appends have the given answers, one after the other, and then are done.
type answering struct {
	driver.Driver
	answers []answer
	ends    []bool // Append.EndsLease of each call
}

type answer struct {
	verdict driver.Verdict
	err     error
}

func (d *answering) Append(_ context.Context, a driver.Append) (driver.Verdict, error) {
	d.ends = append(d.ends, a.EndsLease)
	if len(d.ends) > len(d.answers) {
		return driver.Verdict{}, nil
	}
	next := d.answers[len(d.ends)-1]
	return next.verdict, next.err
}

// The first copy of a Save may have been stored. Other leases then clear or trim what it has stored, and
// the store refuses the next copy. Outside a turn, the first copy may have released the lock. In a turn,
// the lease is lost: its process was paused for longer than the TTL.
func TestSave_O_refusedCopy_unknown(t *testing.T) {
	replayed := func(o driver.Outcome) answer { return answer{verdict: driver.Verdict{Outcome: o, Replayed: true}} }
	silence := answer{err: fmt.Errorf("%w: %w", lockdriver.ErrReplayed, lockdriver.ErrTemporary)}
	for name, answers := range map[string][]answer{
		"stale":                {replayed(driver.Stale)},
		"unowned":              {replayed(driver.Unowned)},
		"gone":                 {replayed(driver.Gone)},
		"taken":                {replayed(driver.Taken)},
		"stale after silence":  {silence, {verdict: driver.Verdict{Outcome: driver.Stale}}},
		"stale, silence first": {silence, silence, {verdict: driver.Verdict{Outcome: driver.Stale}}},
	} {
		for where, before := range map[string][]answer{
			"": nil, ", in a turn": {}, ", later in a turn": {{}},
		} {
			t.Run(name+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := &answering{answers: append(before, answers...)}
					memory := memoryOver(t, func(inner driver.Driver) driver.Driver {
						d.Driver = inner
						return d
					})
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
					if len(d.ends) != len(d.answers) || d.ends[0] != (before == nil) {
						t.Errorf("EndsLease of the calls: %t", d.ends)
					}
				})
			})
		}
	}
}

// A copy that is answered is as good as the first one.
func TestSave_answeredCopy_itsVerdict(t *testing.T) {
	for outcome, want := range map[driver.Outcome]error{
		driver.Done: nil, driver.Known: nil, driver.Conflict: sessionstore.ErrTurnConflict,
	} {
		d := &answering{answers: []answer{{verdict: driver.Verdict{Outcome: outcome, Replayed: true}}}}
		memory := memoryOver(t, func(inner driver.Driver) driver.Driver {
			d.Driver = inner
			return d
		})
		if err := memory.Save(t.Context(), "q", "a"); !errors.Is(err, want) {
			t.Errorf("outcome %d: %v", outcome, err)
		}
	}
}
