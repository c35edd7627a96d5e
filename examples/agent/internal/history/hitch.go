package history

import "time"

// Place is a place in a turn at which an instance can be killed or paused.
type Place string

// The places.
const (
	Write    Place = "write"    // the server does not have the write yet, and nothing can call it back
	Answered Place = "answered" // the server has the write, and the instance does not know that yet
)

// hitch is how much longer a turn takes at its place. The instance renews its lock in that time.
const hitch = 500 * time.Millisecond

// Hitch is the place of the present turn at which its instance calls Reached and takes longer. Without a Place
// it does neither.
type Hitch struct {
	Place   Place
	Reached func()
}

// At is called wherever there may be a hitch.
func (h *Hitch) At(place Place) {
	if h.Place == place {
		h.Reached()
		time.Sleep(hitch)
	}
}
