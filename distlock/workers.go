package distlock

import "time"

// workers runs the calls of the lock service in goroutines that are used again: the stack of a fresh one would have to
// grow in every call, which takes longer than the rest of a Locker's work.
type workers struct {
	idle    chan func() // received by workers that have nothing to do
	closing <-chan struct{}
}

// workerRest is how long a worker waits for another call before it ends. It is short because the one that has waited
// longest is served first: after a burst, as many stay as there are calls in that time, however short the calls.
const workerRest = 100 * time.Millisecond

// run runs f without waiting for it.
func (w *workers) run(f func()) {
	select {
	case w.idle <- f:
	default:
		go w.work(f)
	}
}

func (w *workers) work(f func()) {
	timer := time.NewTimer(workerRest)
	defer timer.Stop()
	for {
		f()
		timer.Reset(workerRest)
		select {
		case f = <-w.idle:
		case <-timer.C:
			return
		case <-w.closing:
			return
		}
	}
}
