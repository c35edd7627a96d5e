// Package sweeps fails operation 0, 1, 2 and so on of every public call that reaches a backend,
// until none is left to fail. Each time it checks the result of the call, the leftovers, and the
// next call.
//
// The idea is that of errorfs in CockroachDB's pebble: the sweep also finds an operation whose
// failure no author thought of. There are two sweeps over the same table of calls. One fails the
// calls of the drivers, in process and on fake time: before they take effect, after it, and by
// hanging. The other one fails the reads and writes of the connections to a real Redis.
//
// A method of the types that talk to a backend, and that is not in the table, fails a test.
package sweeps
