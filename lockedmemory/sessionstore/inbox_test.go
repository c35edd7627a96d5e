package sessionstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// unclosing is a driver that closes nothing.
type unclosing struct{ storedriver.Driver }

func (unclosing) Close(context.Context, storedriver.CloseRequest) (storedriver.Verdict, error) {
	return storedriver.Verdict{}, fmt.Errorf("%w: down", driver.ErrNotDone)
}

// A function has stored its answer itself, and what it supersedes is not closed. The outcome is unknown.
func TestAnswerAll_N_storedInside_notClosed(t *testing.T) {
	d := &unclosing{}
	memory := memoryOver(t, d, &d.Driver)
	results, err := memory.AnswerAll(t.Context(), []lockedmemory.Question[string]{{ID: "a", Message: "q", Superseded: true}, {ID: "b", Message: "q"}},
		func(ctx context.Context, _ []lockedmemory.Question[string]) ([]string, error) {
			return []string{"a"}, memory.SaveOnce(ctx, "b", "q", "a")
		})
	isExactly(t, "AnswerAll", err, distlock.ErrOutcomeUnknown)
	isExactly(t, "b", results[1].Err, distlock.ErrOutcomeUnknown)
}

// putting is a driver that answers Puts with the given verdicts, and notes the Deletes that they name.
type putting struct {
	storedriver.Driver
	verdicts []storedriver.Verdict
	deleted  []int64
}

func (d *putting) Put(_ context.Context, p storedriver.Put) (v storedriver.Verdict, err error) {
	d.deleted = append(d.deleted, p.Deleted)
	v, d.verdicts = d.verdicts[0], d.verdicts[1:]
	return v, nil
}

// A Put names the last Delete once. A copy of it puts nothing into a session that was deleted since, and what may
// still arrive has an unknown outcome.
func TestPut_O_outcome(t *testing.T) {
	deleted := func(fence int64) storedriver.Verdict {
		return storedriver.Verdict{Outcome: storedriver.Deleted, Mark: lockedmemory.Place{Fence: fence}}
	}
	with := func(o storedriver.Outcome) storedriver.Verdict { return storedriver.Verdict{Outcome: o} }
	replayed := func(v storedriver.Verdict) storedriver.Verdict { v.Replayed = true; return v }
	for name, c := range map[string]struct {
		verdicts []storedriver.Verdict
		names    []int64
		want     error
	}{
		"stored":                   {[]storedriver.Verdict{with(storedriver.Done)}, []int64{0}, nil},
		"answered":                 {[]storedriver.Verdict{replayed(with(storedriver.Known))}, []int64{0}, nil},
		"stopped":                  {[]storedriver.Verdict{replayed(with(storedriver.Stopped))}, []int64{0}, lockedmemory.ErrStopped},
		"superseded":               {[]storedriver.Verdict{with(storedriver.Superseded)}, []int64{0}, lockedmemory.ErrSuperseded},
		"full":                     {[]storedriver.Verdict{with(storedriver.Full)}, []int64{0}, lockedmemory.ErrInboxFull},
		"full, sent twice":         {[]storedriver.Verdict{replayed(with(storedriver.Full))}, []int64{0}, distlock.ErrOutcomeUnknown},
		"deleted before":           {[]storedriver.Verdict{deleted(7), with(storedriver.Done)}, []int64{0, 7}, nil},
		"deleted meanwhile":        {[]storedriver.Verdict{deleted(7), deleted(9)}, []int64{0, 7}, sessionstore.ErrDeleted},
		"deleted before, and full": {[]storedriver.Verdict{deleted(7), with(storedriver.Full)}, []int64{0, 7}, lockedmemory.ErrInboxFull},
		"deleted, sent twice":      {[]storedriver.Verdict{replayed(deleted(7))}, []int64{0}, sessionstore.ErrDeleted},
	} {
		d := &putting{verdicts: c.verdicts}
		err := memoryOver(t, d, &d.Driver).Put(t.Context(), "id", "q")
		if !slices.Equal(d.deleted, c.names) {
			t.Errorf("%s: the Puts name %d; want %d", name, d.deleted, c.names)
		}
		for _, each := range []error{lockedmemory.ErrStopped, lockedmemory.ErrInboxFull, distlock.ErrOutcomeUnknown, sessionstore.ErrDeleted} {
			if want := c.want != nil && errors.Is(c.want, each); errors.Is(err, each) != want || (err == nil) != (c.want == nil) {
				t.Errorf("%s: %v; want %v", name, err, c.want)
			}
		}
	}
}
