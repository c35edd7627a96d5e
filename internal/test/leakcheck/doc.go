// Package leakcheck watches a process that runs tests. It finds goroutines that tests leave behind,
// and measures the time in which the machine did not let the process run.
package leakcheck
