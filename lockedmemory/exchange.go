package lockedmemory

import (
	"cmp"
	"fmt"
)

// Exchange is what one write has stored: a question and its answer.
type Exchange[M any] struct {
	Messages []M
	ID       string // of the message, see LockedMemory.SaveOnce; empty if there was none
	// Also are the IDs of the further messages that the exchange answers, see LockedMemory.AnswerAll. Messages
	// begins with all questions.
	Also  []string
	Place Place
	// Pinned keeps the exchange, as a summary, beyond all limits. Set it in a Replace.
	Pinned bool
}

// Input returns the first message, or the zero value.
func (e Exchange[M]) Input() (m M) {
	if len(e.Messages) > 0 {
		m = e.Messages[0]
	}
	return m
}

// Answer returns the messages after the questions.
func (e Exchange[M]) Answer() []M { return e.Messages[min(1+len(e.Also), len(e.Messages)):] }

// Output returns the last message, or the zero value.
func (e Exchange[M]) Output() (m M) {
	if len(e.Messages) > 0 {
		m = e.Messages[len(e.Messages)-1]
	}
	return m
}

// Place is where an exchange stands in its session. Places of a session only rise. All exchanges with one
// Fence are a turn. Replaced content gets another Sub, so a Place from before a Replace names no exchange
// any more. json.Marshal writes a Place, and json.Unmarshal reads it.
type Place struct {
	Fence int64 // the fencing token of the lease it was written under; positive
	N     int64 // the number of the write under that token, from 1; 0: the lease has only read
	Sub   int64 // from 0 to MaxSub; 0 until content is replaced
}

// MaxSub is the highest sub-place.
const MaxSub = 999_999

// Compare returns -1, 0 or 1.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Fence, q.Fence), cmp.Compare(p.N, q.N), cmp.Compare(p.Sub, q.Sub))
}

// String writes the place as the ID of an entry in a Redis Stream.
func (p Place) String() string { return fmt.Sprintf("%d-%d", p.Fence, p.N*(MaxSub+1)+p.Sub) }
