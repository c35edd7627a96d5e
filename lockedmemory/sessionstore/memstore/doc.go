// Package memstore keeps sessions in the memory of one process: for tests, and for services that run as one process and may
// forget.
//
// Its store keeps the promises of package sessionstore among those who share its driver, with any lock. What [New] returns shares it with
// nobody; stores over one driver, see [NewDriver], see the same sessions, as processes over one Redis do:
//
//	sessions := memstore.NewDriver(driver.Settings{Remember: time.Hour})
//	open := func(driver.Settings) (driver.Driver, error) { return sessions, nil }
//	one, err := sessionstore.New(open, session, codec, nil)
//	…
//	two, err := sessionstore.New(open, session, codec, nil)
//
// Such stores keep sessions by the settings of the driver, not by their own Options.
//
// Everything ends with the process. Until then, a session that was cleared or has expired
// leaves its highest token for 24 hours, and its turn IDs for as long as they are remembered.
package memstore
