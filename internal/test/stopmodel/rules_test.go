package stopmodel

import (
	"os"
	"regexp"
	"testing"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/internal/test/pace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestModel_invariants(t *testing.T) {
	for seed := range uint64(pace.Rounds(10_000)) {
		for _, violation := range Play(seed, "") {
			t.Errorf("seed %d: %s", seed, violation)
		}
	}
}

// first has a seed for each rule. Its schedule, or one of the next, breaks a promise without the rule.
var first = map[Rule]uint64{
	"Cond": 3, "Shown": 173, "Stopped": 24, "Loop": 4846, "Key": 138, "RaiseNote": 2964, "Handoff": 13094,
	"LocalKey": 239676, "AnswerLocal": 859, "JoinAsk": 5887, "CloseFirst": 107, "Floor": 4910, "Mark": 1234,
	"Older": 8544, "ShowID": 1, "EndedClose": 1, "Reread": 349, "Below": 2868, "ByRef": 51,
	"Once": 955, "Arrive": 1759, "Judge": 2219, "Handed": 1635, "JudgeBelow": 91, "Overtake": 2219, "Own": 74569,
}

func TestModel_eachRuleIsNeeded(t *testing.T) {
	code, err := os.ReadFile("model_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, quote := range regexp.MustCompile(`has\("(\w+)"\)`).FindAllSubmatch(code, -1) {
		if _, ok := first[Rule(quote[1])]; !ok {
			t.Errorf("rule %s has no seed", quote[1])
		}
	}
	const most = 100
	for rule, seed := range first {
		last := seed + most
		for seed < last && len(Play(seed, rule)) == 0 {
			seed++
		}
		if seed == last {
			t.Errorf("without %s, no promise breaks in %d schedules", rule, most)
		}
	}
}
