package history

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
)

// Recorder records the operations of one process as lines of JSON: one line for the call, one for the
// return, each by one write. The file of a killed process has all lines written before. So the outcome of an
// operation that was under way is unknown. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	out    *os.File
	number int
	err    error
}

// line is one line of a file. The first one names the process.
type line struct {
	Process string `json:"process,omitempty"`
	Number  int    `json:"n,omitempty"`
	Op      *Op    `json:"op,omitempty"`   // it was called
	Ended   *Op    `json:"done,omitempty"` // it has returned: the whole again
}

// Create makes a Recorder for a process. A process that is started again needs another name. The
// Recorder writes to a file of its own, which must not be there yet.
func Create(path, process string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	r := &Recorder{out: f}
	r.write(line{Process: process})
	return r, r.Err()
}

// Err is the first error of a write. A history that has one is not whole, and proves nothing.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close closes the file, and returns the error of [Recorder.Err].
func (r *Recorder) Close() error { return errors.Join(r.Err(), r.out.Close()) }

// Pending is an operation that was called.
type Pending struct {
	r      *Recorder
	number int
	op     Op
	once   sync.Once
}

// Begin records the call of an operation. Call it before the operation can have an effect. It hashes op.Key.
func (r *Recorder) Begin(op Op) *Pending {
	if op.Key != "" {
		op.Key = Hash(op.Key)
	}
	p := &Pending{r: r, op: op}
	r.mu.Lock()
	r.number++
	p.number = r.number
	if p.op.Call == 0 {
		p.op.Call = Now()
	}
	r.writeLocked(line{Number: p.number, Op: &p.op})
	r.mu.Unlock()
	return p
}

// End records the return of the operation, with the facts that fill sets. Call it after the answer. The time
// is taken before fill is called. An operation whose outcome is [Unknown] has no return, because its effect
// may come later. Only the first End counts.
func (p *Pending) End(fill func(*Op)) {
	now := Now()
	p.once.Do(func() {
		done := p.op
		done.Return = now
		if fill != nil {
			fill(&done)
		}
		p.r.write(line{Number: p.number, Ended: &done})
	})
}

func (r *Recorder) write(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeLocked(l)
}

func (r *Recorder) writeLocked(l line) {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = r.out.Write(append(text, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}
