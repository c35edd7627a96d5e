package campaign

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// stream is one of the streams of random numbers of a run. It is made of the seed and of what it is
// for, so that what one part of a run draws does not depend on how often another has drawn.
func stream(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// between is a duration in [low, high).
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(rng.Int64N(int64(high-low)))
}

// now is the time on the clock that all processes of a run share, in nanoseconds.
func now() int64 { return time.Now().UnixNano() }
