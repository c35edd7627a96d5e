package stats

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestSpreadOf(t *testing.T) {
	if got, want := SpreadOf([]float64{3, 1, 10}), (Spread{Median: 3, Min: 1, Max: 10}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := SpreadOf(nil); !math.IsNaN(got.Median) {
		t.Errorf("of nothing: %v", got)
	}
}

func TestMedian_ofAnEvenNumber(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	if got := Median(values); got != 2.5 {
		t.Errorf("got %v, want 2.5", got)
	}
	if !slices.Equal(values, []float64{4, 1, 3, 2}) {
		t.Errorf("the caller's values became %v", values)
	}
}

func TestQuantile_isNearestRank(t *testing.T) {
	var times []time.Duration
	for i := 100; i >= 1; i-- {
		times = append(times, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := Quantile(times, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestRatios_areOfTheSameRound(t *testing.T) {
	if got := Ratios([]float64{2, 0, 9}, []float64{1, 0, 3, 7}); !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("got %v", got)
	}
}
