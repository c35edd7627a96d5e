// Package soak has one test, which keeps an application of the library at work on a Redis for a long time, at a steady pace, and
// looks every few seconds at what the process and the server hold: that must not grow.
//
//	make soak MINUTES=30
//
// The ordinary run lasts for seconds. It shows that the load runs, that no operation fails that should not, that nothing is left
// behind, and that a leak is found.
//
// # The load
//
// Two instances of an application, each a client with a Locker and a session memory, share a Redis and a process. Their workers
// make 500 operations a second, at a fixed pace, which is a fraction of what two cores can do: what is measured is what stays, not
// a queue. A machine that is busy with other things has them make fewer; the run prints how many.
//
// There are locks that are free; locks that many stand in line for; tries that find a lock busy; acquisitions that are cancelled
// at any moment; leases that are held for seconds and renewed a hundred times a TTL; turns; Saves outside turns, and under turn
// IDs, some of them repeated; Clears; sessions that expire and come back; Lockers that are opened and closed. Once a second a
// connection is killed, whosesoever it is. All of it is reported to package tracing, whose spans go nowhere.
//
// # What stays for a while
//
// The counter of a name stays in Redis for a day, and so does the mark of a session that has expired. So the names rotate through
// a fixed population: each is used again and again, within seconds, and a run has seen all of them long before it is measured.
// Sessions that go on keep 20 exchanges. Turn IDs and idle sessions stay for 3 s.
// Tombstones of cancelled acquisitions stay for 2 minutes, but each sample makes them expire within
// seconds.
//
// # What is measured, and when
//
// A sample is taken between operations: none begins, those under way end, and what they have left to the background has a moment.
// What is held is held on. Then the heap is collected, twice, because a sync.Pool keeps what was in it over one collection. A
// sample is of the heap in use, goroutines, open files, connections to Redis, its keys, and its memory less the buffers of its
// clients. What expires within seconds is as much as the pace of these seconds makes, and that is the machine's: it is in the
// samples, but the verdict is on the keys that last, and on what memory there is without the others. The sessions that go on last.
//
// # The verdict
//
// The first quarter, and 20 s at least, is a warm-up: pools and tables fill, every name is used, every session reaches its 20
// turns, and expiries begin to balance writes. Of the samples after that, the growth of a series is its slope, by Theil and Sen
// (the median of the slopes of all pairs of samples, which up to 29 % of wild samples do not move), times the time from the first
// to the last. It may be 2 % of the series' median, or what the bounds in verdict_test.go say, whichever is more. A leak grows
// with the operations; the bounds do not. In half an hour, 256 KiB are 0.4 bytes an operation.
//
// The verdict is tested on made-up series, and on a run with leaks. A long run can have them, too, one of everything every 1,000
// operations: make soak MINUTES=2 FLAGS="-leak 1000" must fail.
package soak
