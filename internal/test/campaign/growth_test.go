package campaign

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

// halfAnHour makes up the samples of a run at 500 operations a second; grown returns the growth of
// a series up to then.
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

// allowed is the bound of the series at a place of the samples.
func allowed(place int) float64 {
	for _, s := range watched {
		if s.at == place {
			return growth{series: s, median: around[place].value}.allowed()
		}
	}
	return 0
}

func still(int, time.Duration) float64 { return 0 }

// wild samples are one in five of those between two times.
func wild(i int, at, from, to time.Duration) float64 {
	if at/(10*time.Second)%5 == 0 && from < at && at < to {
		return 3 * around[i].value
	}
	return 0
}

func TestVerdict(t *testing.T) {
	// One goroutine, connection and file, one key and 1 KiB in 1,000 operations.
	leaks := [nSeries]float64{heap: 1 << 10, goroutines: 1, files: 1, lastingMemory: 1 << 10, lastingKeys: 1, redisClients: 1}
	measured := 30 * time.Minute * 3 / 4
	for name, test := range map[string]struct {
		flat  bool
		grown func(i int, at time.Duration) float64
	}{
		"noise":           {true, still},
		"a small leak":    {false, func(i int, at time.Duration) float64 { return math.Floor(at.Seconds()/2) * leaks[i] }},
		"half the bound":  {true, func(i int, at time.Duration) float64 { return 0.5 * allowed(i) * at.Seconds() / measured.Seconds() }},
		"twice the bound": {false, func(i int, at time.Duration) float64 { return 2 * allowed(i) * at.Seconds() / measured.Seconds() }},
		// There are none in the beginning, as if it grew.
		"wild samples": {true, func(i int, at time.Duration) float64 { return wild(i, at, 10*time.Minute, time.Hour) }},
		// There are none in the end, as if it shrank.
		"wild samples in a leak": {false, func(i int, at time.Duration) float64 {
			if w := wild(i, at, 0, 20*time.Minute); w != 0 {
				return w
			}
			return at.Minutes() / 30 * around[i].value
		}},
		"growth in the warm-up": {true, func(i int, at time.Duration) float64 { return around[i].value * min(0, at.Minutes()/7-1) }},
		"shrinking":             {true, func(i int, at time.Duration) float64 { return -around[i].value * at.Minutes() / 60 }},
	} {
		t.Run(name, func(t *testing.T) {
			verdict, err := judge(halfAnHour(test.grown))
			if err != nil || len(verdict) != len(watched) {
				t.Fatalf("there are %d series in the verdict, want %d: %v", len(verdict), len(watched), err)
			}
			for _, g := range verdict {
				if g.flat() != test.flat {
					t.Error(g)
				}
			}
		})
	}
}

func TestVerdict_needsSamples(t *testing.T) {
	samples := halfAnHour(still)
	if verdict, err := judge(samples[:len(samples)/4+enough-2]); err == nil {
		t.Errorf("of so few: %s", verdict)
	}
	if (growth{series: watched[0], growth: math.NaN()}).flat() {
		t.Error("a NaN is flat")
	}
}

// A system may hide the number of open files. The verdict leaves them out.
func TestVerdict_leavesOutWhatIsNotKnown(t *testing.T) {
	samples := halfAnHour(still)
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
