package watch

import "time"

const (
	beat = time.Millisecond
	// late is how late a beat may come on a machine that is not short of processors.
	late = 5 * time.Millisecond
)

// Stalls watches until the function that it returns is called, which says for how long in all the process was not let
// run, or only in part: other work had the processors. A test of how soon something happens allows for that time, and no
// more.
func Stalls() (stop func() time.Duration) {
	done, stalled := make(chan struct{}), make(chan time.Duration)
	go func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		sum, last := time.Duration(0), time.Now()
		look := func() {
			if gap := time.Since(last); gap > late {
				sum += gap - beat
			}
			last = time.Now()
		}
		for {
			select {
			case <-tick.C:
				look()
			case <-done:
				look()
				stalled <- sum
				return
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-stalled
	}
}
