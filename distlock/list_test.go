package distlock_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func TestList_showsEachLockOnOnePage(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.locker(t, distlock.Options{Holder: "me"}), s.locker(t, distlock.Options{Namespace: "other"})
		var want []string
		for i := range 7 {
			want = append(want, fmt.Sprint("key-", i))
			lease, err := l.Acquire(t.Context(), want[i])
			if err != nil {
				t.Fatal(err)
			}
			defer mustRelease(t, lease)
		}
		mustRelease(t, mustAcquire(t, l)) // a free lock is on no page
		defer mustRelease(t, mustAcquire(t, other))

		var got []string
		for after, pages := "", 0; ; pages++ {
			page, next, err := l.List(t.Context(), after, 3)
			if err != nil || len(page) > 3 || pages > len(want) {
				t.Fatalf("page %d has %d locks, %v", pages, len(page), err)
			}
			for _, info := range page {
				got = append(got, info.Key)
				if own, err := l.Inspect(t.Context(), info.Key); err != nil || own != info || !info.Held || info.Holder != "me" {
					t.Errorf("List has %+v, Inspect %+v, %v", info, own, err)
				}
			}
			if after = next; next == "" {
				break
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("List has %q, want %q", got, want)
		}
	})
}

func TestList_errors(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		for limit, want := range map[int]error{0: distlock.ErrInvalidOption, 1: nil, 1000: nil,
			1001: distlock.ErrInvalidOption} {
			if _, _, err := l.List(t.Context(), "", limit); !errors.Is(err, want) {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
		s.Inject(on(drivertest.List, drivertest.Fault{Before: errBroken}))
		if page, next, err := l.List(t.Context(), "", 1); !errors.Is(err, distlock.ErrUnavailable) || page != nil ||
			next != "" {
			t.Errorf("of a broken backend: %v, %q, %v", page, next, err)
		}
		bare, err := distlock.New(noLister{memlock.NewDriver()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer bare.Close(t.Context())
		wrapped, err := distlock.New(drivertest.NewFaults(noLister{memlock.NewDriver()}), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer wrapped.Close(t.Context())
		for name, l := range map[string]*distlock.Locker{"bare": bare, "wrapped": wrapped} {
			if _, _, err := l.List(t.Context(), "", 1); !errors.Is(err, errors.ErrUnsupported) ||
				errors.Is(err, distlock.ErrUnavailable) {
				t.Errorf("%s driver that cannot list: %v", name, err)
			}
		}
	})
}

// noLister is a driver of a backend that cannot list its locks.
type noLister struct{ driver.Driver }
