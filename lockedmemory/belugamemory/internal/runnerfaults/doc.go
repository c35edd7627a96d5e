// Package runnerfaults has one test. Processes run turns of shared sessions through Beluga's Runner on
// one Redis, while the test kills and pauses these processes. Then it compares the stored sessions
// with the answers that the clients have seen.
//
//	go test ./internal/runnerfaults -v -args -sessions 50 -runs 20
//
// # The load
//
// Each process is an instance of an application. Each of its clients sends one message at a time, and
// the order of the sessions is random. So some sessions are busy in several processes, and each
// process has runs at work, runs that wait, and idle sessions.
// A client repeats a message only after an error that belugamemory.Retryable accepts. An answer has the
// number of turns that its agent knew.
//
// # The faults
//
// Kills and pauses alternate, and they are spread over the runs. A kill is SIGKILL. Another process
// takes the place of the killed one. A pause is a SIGSTOP for longer than the TTL, so the runs of the
// process lose their sessions. Then the process continues, and tries to store its turns.
//
// # The verdict
//
// Package integrity finds turns that are lost, torn, doubled, stale or out of order. Also, each answer
// that a client has seen is stored as the client has seen it. A client whose process is killed has
// seen an error: its turn is stored or not.
//
// The same load on a plain service in Redis, without a lock, must lose turns.
package runnerfaults
