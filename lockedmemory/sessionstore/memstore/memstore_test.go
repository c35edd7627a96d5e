package memstore_test

import (
	"testing"

	"github.com/belugalock/belugalock/distlock"

	"github.com/belugalock/belugalock/distlock/memlock"
	storedriver "github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Service {
		locks := memlock.NewDriver()
		stores := make(map[storedriver.Settings]storedriver.Driver)
		return storetest.Service{
			Driver: func(_ testing.TB, s storedriver.Settings) storedriver.Driver {
				s.Namespace = ""
				if stores[s] == nil {
					stores[s] = memstore.NewDriver(s)
				}
				return stores[s]
			},
			Locker: func(tb testing.TB, opts *distlock.Options) *distlock.Locker {
				l, err := distlock.New(locks, opts)
				if err != nil {
					tb.Fatal(err)
				}
				return l
			},
		}
	})
}
