package quorum_test

import (
	"flag"
	"testing"
	"time"
)

// The protocol of docs/design/redlock.md as an abstract machine, with a switch for each rule. A run
// is one seed: nodes, clients and faults by chance. All runs hold what the driver promises:
//
//   - "two holders": no two clients trust a lease of the name at the same time.
//   - "token": each token that a client begins to use is above all earlier ones.
//   - "shown": a busy reply never shows a holder's token below one of an earlier answer.
//   - "lease lost": no lease is reported as lost while a quorum holds it.
//   - "no grant": a free name is granted to a client that asks once, with a minority down.
//   - "no winner", "slow": see the scenarios.
//
// Without a rule, some run breaks a promise. TestModel_eachRuleIsNeeded names it.

var (
	modelRuns   = flag.Uint64("model-runs", 1500, "how many runs of the model have all rules")
	modelSeed   = flag.Uint64("model-seed", 0, "explains the run of this seed, see the other flags")
	modelRule   = flag.Int("model-rule", 0, "the rule that the explained run or the search is without")
	modelOf     = flag.String("model-scenario", "explore", "the scenario of the explained run")
	modelSearch = flag.Duration("model-search", 0, "for how long to look for a seed for each rule")
)

var modelScenarios = map[string]modelScenario{
	"explore": modelExplore(func(*modelWorld, *modelFaults) {}),
	"flaps":   modelExplore(modelFlaps),
	"storm":   modelExplore(modelStorm),
	"race":    modelRaces(5, 32, func(*modelWorld) {}),
	"dead":    modelRaces(3, 4, func(w *modelWorld) { w.nodes[w.rng.IntN(3)].up = false }),
	"orphan":  modelRaces(3, 4, modelOrphan),
	"keeps":   modelKeeps,
	"turns":   modelTurns,
	"young":   modelTwoRestarts,
}

func TestModel_allRulesKeepThePromises(t *testing.T) {
	if *modelSeed > 0 {
		modelScenarios[*modelOf](*modelSeed, rule(*modelRule), t.Logf)
		return
	}
	for name, scenario := range modelScenarios {
		runs := uint64(300)
		if explores(name) {
			runs = *modelRuns / 3
		}
		start, grants := time.Now(), 0
		for seed := uint64(1); seed <= runs; seed++ {
			w := scenario(seed, ruleNone, nil)
			if grants += w.grants; w.failed != "" {
				scenario(seed, ruleNone, t.Logf)
				t.Fatalf("scenario %s, seed %d: %s", name, seed, w.failed)
			}
		}
		t.Logf("%s: %d runs, %d grants, %v", name, runs, grants, time.Since(start))
	}
}

// explores reports whether a scenario has faults by chance, so that more runs find more.
func explores(name string) bool { return name == "explore" || name == "flaps" || name == "storm" }

func TestModel_eachRuleIsNeeded(t *testing.T) {
	for r := ruleNone + 1; r < ruleCount; r++ {
		row := modelRules[r]
		if only := rule(*modelRule); only != ruleNone && only != r {
			continue
		}
		t.Run(row.text, func(t *testing.T) {
			if *modelSearch > 0 {
				search(t, r)
				return
			}
			w := modelScenarios[row.scenario](row.seed, r, nil)
			if w.failed != row.violation {
				t.Errorf("scenario %s, seed %d: %q, want %q; look for another seed: -model-search 1m",
					row.scenario, row.seed, w.failed, row.violation)
			}
		})
	}
}

// search prints the first run of each scenario that goes wrong without a rule.
func search(t *testing.T, without rule) {
	start, found, seed := time.Now(), map[string]bool{}, uint64(1)
	for ; time.Since(start) < *modelSearch && !found[modelRules[without].violation]; seed++ {
		for name, scenario := range modelScenarios {
			if seed > 300 && !explores(name) {
				continue
			}
			if w := scenario(seed, without, nil); w.failed != "" && !found[name+w.failed] {
				t.Logf("rule %d: %q, %q, %d", without, w.failed, name, seed)
				found[name+w.failed], found[w.failed] = true, true
			}
		}
	}
	t.Logf("rule %d: %d seeds", without, seed-1)
}
