package campaign

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// series is something that must not grow.
type series struct {
	name string
	at   int // its place in a sample
	// least is a growth that is allowed even if it is more than share of the whole.
	least float64
	// leak is what one planted leak adds.
	leak float64
	unit string
	per  float64 // one of unit
}

// share is the part of a series that may always be added. From one sample to the next, a series
// moves by more.
const share = 0.02

// watched are the series that the verdict is on.
var watched = []series{
	// The buffers of four connections of go-redis: as many may have been killed just before a sample.
	{"heap in use", heap, 256 << 10, leakedBytes, "KiB", 1 << 10},
	// On a slow machine, the replacements of killed connections come late, and background work is
	// still there.
	{"goroutines", goroutines, 4, 1, "", 1},
	{"open files", files, 4, 1, "", 1},
	// The tables of a thousand keys and of their expiries, which double at once, with the last
	// block of some sessions.
	{"lasting memory of Redis", lastingMemory, 64 << 10, leakedKeys * leakedValue, "KiB", 1 << 10},
	// There are one to three for each name.
	{"lasting keys in Redis", lastingKeys, 10, leakedKeys, "", 1},
	{"connections to Redis", redisClients, 4, 1, "", 1},
}

// growth is what a series did in the time that was measured.
type growth struct {
	series         series
	median, growth float64
}

type growths []growth

func (g growth) allowed() float64 { return max(g.series.least, share*g.median) }

// flat is false also for a NaN.
func (g growth) flat() bool { return g.growth <= g.allowed() }

func (g growth) String() string {
	word := "flat"
	if !g.flat() {
		word = "GROWS"
	}
	unit := func(f float64) string {
		return strings.TrimSpace(fmt.Sprintf("%.1f %s", f/g.series.per, g.series.unit))
	}
	return fmt.Sprintf("%s: %s, growth %s, allowed %s: %s",
		g.series.name, unit(g.median), unit(g.growth), unit(g.allowed()), word)
}

func (all growths) String() string {
	var lines []string
	for _, g := range all {
		lines = append(lines, g.String())
	}
	return strings.Join(lines, "\n")
}

// enough is the number of samples that a verdict needs.
const enough = 6

// judge returns the growth of each series in the measured time. It leaves out the open files if the
// system hides them.
func judge(samples []sample) (growths, error) {
	samples = measured(samples)
	if len(samples) < enough {
		return nil, fmt.Errorf("there are %d samples after the warm-up, which is too few for a verdict", len(samples))
	}
	took := samples[len(samples)-1].at - samples[0].at
	var verdict growths
	for _, s := range watched {
		var values []float64
		for _, sample := range samples {
			values = append(values, sample.values[s.at])
		}
		if s.at == files && slices.Max(values) == 0 {
			continue
		}
		verdict = append(verdict, growth{series: s, median: median(values), growth: slope(samples, values) * took.Seconds()})
	}
	return verdict, nil
}

// measured returns the samples after the warm-up.
func measured(samples []sample) []sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return s.warmUp })
}

// slope is the estimator of Theil (1950) and Sen (1968), per second: the median of the slopes between
// all pairs. Almost three samples of ten may be wild.
func slope(samples []sample, values []float64) float64 {
	var slopes []float64
	for i := range values {
		for j := range i {
			slopes = append(slopes, (values[i]-values[j])/(samples[i].at-samples[j].at).Seconds())
		}
	}
	return median(slopes)
}

// median is not a number if there are no values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
