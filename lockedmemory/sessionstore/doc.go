// Package sessionstore is a session memory that refuses stale writers.
package sessionstore
