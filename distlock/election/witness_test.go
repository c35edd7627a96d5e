package election_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// proof is how many steps in a row, each at most hiccup after the one before, show that a process
// runs. After a pause, the timer that ends the context needs a moment, too.
const (
	proof  = 3
	hiccup = 20 * time.Millisecond
)

// record is what a witness knows of one run of lead.
type record struct {
	token      int64
	process    int
	began      int64 // the first step
	last       int64 // step
	row        int   // steps without a hiccup, until the last one
	ran        int64 // the last step at which the process ran and its context had not ended
	firstActed int64 // the store had answered the first accepted act
	lastActed  int64 // the last accepted act was sent
	refused    int   // acts
	left       int64
}

// witness compares the steps and the acts of all processes.
type witness struct {
	mu    sync.Mutex
	terms map[int64]*record
}

func (w *witness) hear(process int, s said) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.terms[s.Token]
	if t == nil {
		t = &record{token: s.Token, process: process}
		w.terms[s.Token] = t
	}
	switch {
	case s.What == sayLeft:
		t.left = s.At
	case s.What == sayAct && s.Refused:
		t.refused++
	case s.What == sayAct:
		if t.firstActed == 0 {
			t.firstActed = s.Done
		}
		t.lastActed = s.At
	default:
		if s.At-t.last > int64(hiccup) {
			t.row = 0
		}
		t.row++
		t.last = s.At
		if t.began == 0 {
			t.began = s.At
		}
		if s.Running && t.row >= proof {
			t.ran = s.At
		}
	}
}

// newest returns the term with the highest token, once its process has shown that it runs and the
// store has accepted an act. Otherwise it returns false.
func (w *witness) newest() (t record, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.terms) == 0 {
		return record{}, false
	}
	t = *w.terms[slices.Max(slices.Collect(maps.Keys(w.terms)))]
	return t, t.ran > 0 && t.firstActed > 0 && t.left == 0
}

func (w *witness) of(token int64) record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.terms[token]
}

func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.terms)
}

// violations compares each term with all terms of higher tokens: two leaders that ran at a time, and
// acts that the store accepted from an older leader after an act of a newer one.
func (w *witness) violations() (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tokens := slices.Sorted(maps.Keys(w.terms))
	for i, token := range tokens {
		older := w.terms[token]
		for _, next := range tokens[i+1:] {
			newer := w.terms[next]
			if newer.ran > 0 && older.ran > newer.began {
				found = append(found, fmt.Sprintf("process %d led with token %d until %s after process %d had begun to lead with %d",
					older.process, older.token, time.Duration(older.ran-newer.began), newer.process, newer.token))
			}
			if newer.firstActed > 0 && older.lastActed > newer.firstActed {
				found = append(found, fmt.Sprintf("the store accepted an act under token %d, %s after one under %d",
					older.token, time.Duration(older.lastActed-newer.firstActed), newer.token))
			}
		}
	}
	return found
}
