// Package storetest is the contract of a session store, as tests that every driver runs against a real instance of its service:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Service {
//			return storetest.Service{
//				Driver: func(tb testing.TB, keep driver.Retention) driver.Driver { … },
//				Locker: func(tb testing.TB, opts *distlock.Options) *distlock.Locker { … },
//			}
//		})
//	}
//
// The tests act as several instances of a service do: each has a driver, a store and a Locker of its own, and they meet in the service alone. A
// paused holder is played by the context of a turn that is over. Each test has a session of its own, so they may share an instance of the
// service, and run at once.
//
// Their names bear the letters of the promises in docs/semantics.md: O for order, S2 for fenced
// writes.
package storetest
