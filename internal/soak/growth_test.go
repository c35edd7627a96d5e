package soak

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// around is what the series are in a run, and by how much they go up and down in it.
var around = [nSeries]struct{ value, noise float64 }{
	heap:          {2800 << 10, 60 << 10},
	goroutines:    {66, 3},
	files:         {45, 1},
	lastingMemory: {2200 << 10, 30 << 10},
	lastingKeys:   {538, 1},
	redisClients:  {34, 1},
}

// halfAnHour makes up the samples of a run at 500 operations a second; grown says what a series has gained by then.
func halfAnHour(grown func(place int, at time.Duration) float64) (samples []sample) {
	random := rand.New(rand.NewPCG(1, 2))
	for at := 10 * time.Second; at <= 30*time.Minute; at += 10 * time.Second {
		s := sample{at: at, warmUp: at < 30*time.Minute/4, operations: int64(500 * at.Seconds())}
		for i, a := range around {
			s.values[i] = a.value + a.noise*random.NormFloat64() + grown(i, at)
		}
		samples = append(samples, s)
	}
	return samples
}

func check(t *testing.T, samples []sample, flat bool) {
	t.Helper()
	verdict, err := judge(samples)
	if err != nil {
		t.Fatal(err)
	}
	if len(verdict) != len(watched) {
		t.Errorf("there are %d series in the verdict, want %d", len(verdict), len(watched))
	}
	for _, g := range verdict {
		if g.flat() != flat {
			t.Error(g)
		}
	}
}

func TestVerdict_noiseIsNoGrowth(t *testing.T) {
	check(t, halfAnHour(func(int, time.Duration) float64 { return 0 }), true)
}

// The leak is of one goroutine, connection and file, one key and 1 KiB in 1,000 operations.
func TestVerdict_seesALeakOfOneInAThousandOperations(t *testing.T) {
	leaks := [nSeries]float64{heap: 1 << 10, goroutines: 1, files: 1, lastingMemory: 1 << 10, lastingKeys: 1, redisClients: 1}
	check(t, halfAnHour(func(i int, at time.Duration) float64 { return math.Floor(at.Seconds()/2) * leaks[i] }), false)
}

// The bounds are where they are said to be, whatever the noise.
func TestVerdict_boundsGrowth(t *testing.T) {
	measured := 30 * time.Minute * 3 / 4
	for _, test := range []struct {
		times float64
		flat  bool
	}{{0.5, true}, {2, false}} {
		check(t, halfAnHour(func(i int, at time.Duration) float64 {
			return test.times * allowed(i) * at.Seconds() / measured.Seconds()
		}), test.flat)
	}
}

// allowed is the bound of the series at a place of the samples.
func allowed(place int) float64 {
	for _, s := range watched {
		if s.at == place {
			return growth{series: s, median: around[place].value}.allowed()
		}
	}
	return 0
}

func TestVerdict_wildSamplesAreNoGrowth(t *testing.T) {
	n := 0
	check(t, halfAnHour(func(i int, at time.Duration) float64 {
		if n++; n/nSeries%5 == 0 && at > 10*time.Minute {
			return 3 * around[i].value // as if it grew: there are none in the beginning
		}
		return 0
	}), true)
}

func TestVerdict_wildSamplesHideNoLeak(t *testing.T) {
	n := 0
	check(t, halfAnHour(func(i int, at time.Duration) float64 {
		if n++; n/nSeries%5 == 0 && at < 20*time.Minute {
			return 3 * around[i].value // as if it shrank
		}
		return at.Minutes() / 30 * around[i].value
	}), false)
}

func TestVerdict_leavesTheWarmUpOut(t *testing.T) {
	check(t, halfAnHour(func(i int, at time.Duration) float64 { return around[i].value * min(0, at.Minutes()/7-1) }), true)
}

func TestVerdict_shrinkingIsFlat(t *testing.T) {
	check(t, halfAnHour(func(i int, at time.Duration) float64 { return -around[i].value * at.Minutes() / 60 }), true)
}

func TestVerdict_needsSamples(t *testing.T) {
	samples := halfAnHour(func(int, time.Duration) float64 { return 0 })
	if verdict, err := judge(samples[:len(samples)/4+enough-2]); err == nil {
		t.Errorf("of so few: %s", verdict)
	}
	if (growth{series: watched[0], growth: math.NaN()}).flat() {
		t.Error("what is no number is flat")
	}
}

// Where the system does not tell what is open, nothing is said of it.
func TestVerdict_leavesOutWhatIsNotKnown(t *testing.T) {
	samples := halfAnHour(func(int, time.Duration) float64 { return 0 })
	for i := range samples {
		samples[i].values[files] = 0
	}
	verdict, err := judge(samples)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range verdict {
		if g.series.at == files {
			t.Error(g)
		}
	}
}
