package conversation

// Role tells a question from its answer.
type Role string

// The roles.
const (
	Question Role = "question"
	Answer   Role = "answer"
)

// Message is one stored message.
type Message struct {
	Turn   int    // the number of the user's message that it is, or answers
	Role   Role   // Question or Answer
	Writer string // the name of the writer
	// Write names the Save of the message, if it is known. Messages of two Saves are never one
	// pair. A second copy from one Save is a repetition, and is not stale for its ignorance of the
	// first.
	Write string
	// Seen is, of an answer, how many messages its writer had seen before it answered, without the
	// question.
	Seen int
}

// Attempt is what one writer knows of one attempt to store a turn.
type Attempt struct {
	Turn         int
	Writer       string // the Writer of the messages that it leaves
	Acknowledged bool   // its Save returned without an error; otherwise the turn may be stored or not
	// Begun and Ended are the times of the attempt, or numbers that count up, on a scale that all
	// attempts of this writer share. The order of attempts for which both are 0 is not judged.
	Begun, Ended int64
}
