// Package memstore keeps sessions in the memory of one process: for tests, and for services of one
// process whose conversations may end with it.
//
// Its store keeps the promises of package sessionstore, with any lock. Each store of [New] has sessions
// of its own. Stores over one driver, see [NewDriver], share sessions, as processes over one Redis do:
//
//	sessions, err := memstore.NewDriver(nil)
//	…
//	one, err := sessionstore.New(sessions, session, codec, nil)
//	…
//	two, err := sessionstore.New(sessions, session, codec, nil)
//
// Everything ends with the process. Until then, a session that was cleared or has expired
// leaves its highest token for 24 hours, and its IDs for as long as they are remembered.
package memstore
