// Package sweeps fails operation 0, 1, 2 and so on of every public call that reaches a backend,
// until none is left to fail. Each time it checks the result, the leftovers and the next call. So
// it finds operations whose failure no author thought of, as errorfs in CockroachDB's pebble does.
// One sweep fails the calls of the drivers, on fake time, and the other one the reads and writes of
// connections to real servers. Each method that talks to a backend has a row.
package sweeps
