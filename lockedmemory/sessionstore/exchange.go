package sessionstore

import "github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"

// Exchange is the stored form of one Save.
type Exchange[M any] struct {
	Messages []M
	ID       string // the turn's, see lockedmemory.WithTurnID; empty if it had none
	Number   int    // of the exchange under ID, from 1; 0 without an ID
	Place    Place
}

// Input returns the first message. Without messages, it returns the zero value.
func (e Exchange[M]) Input() (m M) {
	if len(e.Messages) > 0 {
		m = e.Messages[0]
	}
	return m
}

// Output returns the last message. Without messages, it returns the zero value.
func (e Exchange[M]) Output() (m M) {
	if len(e.Messages) > 0 {
		m = e.Messages[len(e.Messages)-1]
	}
	return m
}

// Place is where an exchange stands in its session: Fence is the token of its lease, N the number of
// the write under that token, from 1, and Sub is 0. Places of a session only rise. A turn in the store
// is all exchanges with one Fence. In Redis, a place prints as the ID of the Stream's entry.
type Place = driver.Place
