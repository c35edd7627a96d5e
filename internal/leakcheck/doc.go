// Package leakcheck looks after a process that runs tests: for goroutines that its tests leave behind, and for time in which
// the machine did not let it run.
package leakcheck
