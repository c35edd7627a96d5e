// Package soak has one test. It keeps an application of the library at work on a Redis, at a steady
// pace. Every few seconds it samples the resources of the process and of the server. They must not
// grow.
//
//	make soak MINUTES=30
//
// The ordinary run lasts for seconds. It shows that the load runs, that only expected operations fail,
// that nothing is left over, and that the verdict finds a leak.
//
// # The load
//
// Two instances of an application share a Redis and a process. Each is a client with a Locker and a
// session memory. Their workers make 500 operations a second, a fraction of the capacity of two cores:
// the samples show leftovers, not a queue. A busy machine makes fewer, and the run prints the number.
//
// The load has free locks, locks with a long queue, tries that find a lock busy, and acquisitions that
// are cancelled at any moment. Leases are held for seconds and renewed a hundred times a TTL. It has
// turns, Saves outside turns, and SaveOnces, some of them repeated. It has Clears, sessions
// that expire and come back, and Lockers that are opened and closed. Once a second, any connection is
// killed. Package tracing observes all of it, and its spans are dropped.
//
// # What stays for a while
//
// Redis keeps the record of a name, and the mark of an expired session, for a day. So the names rotate
// through a fixed population. Each is used again within seconds, and the warm-up uses all of them.
// Sessions that go on keep 20 exchanges. Turn IDs and idle sessions stay for 3 s.
// Tombstones of cancelled acquisitions stay for 2 minutes, but each sample makes them expire within
// seconds.
//
// # Samples
//
// A sample is taken between operations: none begins, the running ones end, and their background
// work has a moment. Held leases stay held. Then the heap is collected twice, because a sync.Pool
// keeps its content over one collection. A sample has the heap in use, goroutines, open files,
// connections to Redis, its keys, and its memory less the buffers of its clients. Keys that expire
// within seconds depend on the pace of the machine. They are in the samples, but the verdict is on
// the lasting keys and on the memory without the others. The sessions that go on last.
//
// # The verdict
//
// The first quarter, and 20 s at least, is a warm-up: pools and tables fill, every name is used, every
// session reaches its 20 turns, and expiries begin to balance writes. After that, the growth of a
// series is its slope times the time from the first to the last sample. The slope is that of Theil
// and Sen: the median of the slopes of all pairs, which up to 29 % of wild samples do not move. The
// growth may be 2 % of the series' median, or the bound in verdict_test.go, whichever is more. A
// leak grows with the operations; the bounds do not. In half an hour, 256 KiB are 0.4 bytes an
// operation.
//
// The verdict is tested on artificial series, and on a run with leaks. A long run can have them,
// too: one leak of each kind every 1,000 operations. make soak MINUTES=2 FLAGS="-leak 1000" must
// fail.
package soak
