// Package storetest is the contract of a session store, as tests. Every driver runs them against a
// real instance of its service:
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
// The tests act as several instances of an application: each has its own driver, store and Locker. The
// context of an ended turn acts as a paused holder. Each test has its own session, so tests may share
// an instance of the service and run at once.
//
// Their names bear the letters of the promises in docs/guarantees.md: O for order, S2 for fenced
// writes.
package storetest
