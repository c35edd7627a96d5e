// Package hammer has one test, which lets many processes compete for a few locks, with cancellations at any moment, and
// checks that no two ever work at once, that fencing tokens rise, that the patient are served, and that nothing is left
// behind: no lock, no line, no goroutine.
//
// The ordinary run is short. The environment variable HAMMER, as in HAMMER=8x64x5m, says how many processes with how many
// goroutines each compete, and for how long; make hammer sets it.
package hammer
