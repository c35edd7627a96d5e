// Package drivertest is the conformance suite of drivers.
//
// A backend calls [Run] from a test of its own, once per kind of service it works with. Each test bears the letter of the
// promise it stands for: S1 mutual exclusion, S2 fencing tokens, L liveness, N notice, C closed by default. What
// a driver's Capabilities deny is tested the other way round, or not at all.
//
// [Faults] wraps any driver and makes its calls fail, hang, or lose their answers: for tests of what is built
// on drivers, here and in programs that use this library.
package drivertest
