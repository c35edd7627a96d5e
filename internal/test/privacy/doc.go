// Package privacy drives the lock, the memory, the session store and the tracing through failures
// of every kind, with sessions, messages, turn IDs and passwords that bear a mark, and searches all
// that leaves the process for it: error texts, log lines, also those of go-redis, and spans.
package privacy
