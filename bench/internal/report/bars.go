package report

import (
	"math"

	"github.com/belugalock/belugalock/bench/internal/scenario"
)

// Bar is what a ratio should be at most, or at least.
type Bar struct {
	Key     string
	AtLeast bool
	Limit   float64
}

// Bars are the bars that this library sets itself, in the order of the scenarios.
var Bars = []Bar{
	{"serial_vs_raw", false, 1.5},
	{"serial_vs_redislock", false, 1.3},
	{"serial_redis_vs_raw", false, 4.3},
	{"tracing_off_vs_none", false, 1.02},
	{"tracing_on_vs_none", false, 1.15},
	{"parallel_vs_best_peer", true, 0.9},
	{"parallel_redis_vs_raw", false, 4.3},
	{"local_vs_best_peer", true, 25},
	{"cross_vs_ideal", true, 0.93},
	{"cross_p99_wait_vs_fair", false, 2},
	{"cross_max_wait_vs_fair", false, 4},
	{"cross_calls_per_acquisition", false, 1},
	{"cross_min_max_share", true, 0.8},
	{"handoff_vs_rtt", false, 3},
	{"idle_calls_per_waiter_per_s", false, 0.3},
	{"save_vs_xadd", false, 2.8},
	{"turn_save_vs_xadd", false, 1.15},
	{"turn_id_save_vs_xadd", false, 2.2},
	{"load_1000_vs_lrange", false, 1.35},
	{"append_100k_vs_10", false, 1.1},
	{"turn_append_100k_vs_10", false, 1.1},
	{"answered_round_trips", false, 1},
	{"last_20_100k_vs_100", false, 1.2},
	{"replace_1_of_1000_vs_pipeline", false, 4},
	{"replace_1000_vs_pipeline", false, 4},
	{"longest_step_ms", false, 5},
	{"redlock_vs_redsync", false, 1.1},
	{"redlock_one_dead_vs_all_up", false, 1.1},
	{"redlock_one_hung_vs_all_up", false, 1.2},
	{"redlock_contended_vs_redsync", true, 2},
	{"redlock_rounds_without_winner", false, 0},
	{"pg_serial_vs_raw", false, 1.25},
	{"pg_cross_vs_ideal", true, 0.85},
	{"pg_connections_1000_waiters", false, 4},
	{"pg_save_vs_insert", false, 1.3},
	{"pg_notify_tax", true, 0.6},
	{"pg_renew_1000_ms", false, 50},
}

// Met reports whether the median of a ratio meets the bar. A NaN meets none.
func (b Bar) Met(r scenario.Ratio) bool {
	if math.IsNaN(r.Median) {
		return false
	}
	if b.AtLeast {
		return r.Median >= b.Limit
	}
	return r.Median <= b.Limit
}

// barOf returns the bar of a ratio.
func barOf(key string) (Bar, bool) {
	for _, b := range Bars {
		if b.Key == key {
			return b, true
		}
	}
	return Bar{}, false
}
