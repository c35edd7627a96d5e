// Package sweeps fails operation 0, 1, 2 and so on of every public call that reaches a service, until none is left to fail, and
// looks each time at what the caller was told, at what was left behind, and at whether the next call works.
//
// The idea is that of errorfs in CockroachDB's pebble: nobody has to guess which operation it is whose failure was forgotten.
// There are two sweeps over the same table of calls. One fails the calls of the drivers, in process and on fake time: before they
// take effect, after it, and by hanging. The other one fails the reads and writes of the connections to a real Redis.
//
// A method of the types that talk to a service, and that is not in the table, fails a test.
package sweeps
