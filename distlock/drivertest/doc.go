// Package drivertest is the conformance suite of drivers.
//
// A backend calls [Run] from a test of its own, once per kind of server, with a [Service]. Each test
// bears the letter of its promise: S1 mutual exclusion, S2 fencing tokens, L liveness, N notice,
// C closed by default. Capabilities and optional interfaces choose the tests.
//
// [Faults] wraps any driver and makes its calls fail, hang, or lose their answers. It is for tests of
// programs that use drivers.
package drivertest
