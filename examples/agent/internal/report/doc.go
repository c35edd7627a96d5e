// Package report says what became of conversations, without and with a lock: it judges what the
// instances have left, and tells it on a terminal. Package page tells the same in HTML.
package report
