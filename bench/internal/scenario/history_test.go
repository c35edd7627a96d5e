package scenario

import (
	"testing"

	"github.com/belugalock/belugalock/bench/internal/stats"
)

// One step that is stretched in one round does not count. One that is long in most rounds does.
func TestLongestStep_isOfTheMedians(t *testing.T) {
	rounds := [][]float64{{1, 90, 2, 1}, {1, 1, 3, 80}, {70, 1, 4, 1, 60}}
	if got, want := longestStep(rounds), (stats.Spread{Median: 3, Min: 2, Max: 90}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
