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

// answering is a driver whose Appends have the given answers, one after the other.
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
	next := d.answers[len(d.ends)]
	d.ends = append(d.ends, a.EndsLease)
	return next.verdict, next.err
}

// A Save outside a turn may have released the lock with its first copy. Other leases then clear or
// trim what the copy has stored, and the store refuses the next copy.
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &answering{answers: answers}
				memory := memoryOver(t, func(inner driver.Driver) driver.Driver {
					d.Driver = inner
					return d
				})
				isExactly(t, "Save", memory.Save(t.Context(), "q", "a"), distlock.ErrOutcomeUnknown)
				if len(d.ends) != len(answers) || !d.ends[0] {
					t.Errorf("EndsLease of the calls: %t", d.ends)
				}
			})
		})
	}
}

// Inside a turn the lease is held, so a refused copy has not been stored before.
func TestSave_refusedCopyInATurn_stale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &answering{answers: []answer{{}, {verdict: driver.Verdict{Outcome: driver.Stale, Replayed: true}}}}
		memory := memoryOver(t, func(inner driver.Driver) driver.Driver {
			d.Driver = inner
			return d
		})
		_ = memory.Turn(t.Context(), func(ctx context.Context) error {
			must(t, memory.Save(ctx, "q", "a"))
			isExactly(t, "Save", memory.Save(ctx, "q", "a"), distlock.ErrLost)
			return nil
		})
		if len(d.ends) != 2 || d.ends[0] || d.ends[1] {
			t.Errorf("EndsLease of the calls: %t", d.ends)
		}
	})
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
