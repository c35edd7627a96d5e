package quorum_test

// A rule is one sentence of the protocol that the model can leave out.
type rule int

const (
	ruleNone rule = iota
	// What a node does.
	ruleAbove
	ruleLast
	ruleOwner
	ruleEnd
	ruleBlock
	ruleKeep
	ruleNoGrant
	ruleWritable
	// Acquire.
	ruleNodeClock
	ruleQuorumClock
	ruleMedianClock
	ruleOneToken
	ruleRaiseAll
	ruleBefore
	ruleNodeOwner
	ruleTie
	ruleHasQuorum
	ruleLower
	ruleRace
	ruleShown
	ruleShownYoung
	// Undo and Release.
	ruleOvertake
	ruleTombstone
	ruleReplayed
	// Extend and Raise.
	ruleRetake
	ruleRetakeAbove
	ruleExtendOnce
	ruleExactOpen
	// Restarts.
	ruleYoung
	ruleYoungHeld
	ruleLargestTTL
	ruleCount
)

// modelRules names, for each rule, a run that goes wrong without the rule.
var modelRules = [ruleCount]struct {
	text      string
	violation string
	scenario  string
	seed      uint64
}{
	ruleAbove:       {"a token is accepted only above the last", "token", "shorten", 1},
	ruleLast:        {"nothing lowers the last token", "token", "shorten", 1},
	ruleOwner:       {"tokens are compared with their owner", "two holders", "explore", 3},
	ruleEnd:         {"the end of the block is part of the request", "token", "explore", 3},
	ruleBlock:       {"a block has 256 tokens", "slow", "turns", 1},
	ruleKeep:        {"a node refuses tokens of which it may have removed the record", "token", "explore", 6},
	ruleNoGrant:     {"an exact Raise never grants", "no grant", "shorten", 184},
	ruleWritable:    {"not held comes from a node that can write", "lease lost", "explore", 1068},
	ruleNodeClock:   {"no token depends on the clock of a client", "token", "storm", 201},
	ruleQuorumClock: {"no proposal before the clocks of a quorum are known", "token", "storm", 2585},
	ruleMedianClock: {"the clock is the quorum-th highest", "no grant", "explore", 10},
	ruleOneToken:    {"acceptances count for one token", "token", "explore", 6796},
	ruleRaiseAll:    {"a higher proposal goes to all nodes", "no grant", "explore", 34},
	ruleBefore:      {"a lease counts from before the first proposal", "two holders", "explore", 29},
	ruleNodeOwner:   {"each attempt has a node owner of its own", "two holders", "explore", 15},
	ruleTie:         {"the attempt that has the lowest node goes on", "no winner", "dead", 1},
	ruleHasQuorum:   {"only an owner that has a quorum ends the race", "no winner", "dead", 1},
	ruleLower:       {"a race waits for the answers of lower nodes", "no winner", "dead", 2},
	ruleRace:        {"the orphan of a dead client is in no race", "no winner", "orphan", 1},
	ruleShown:       {"a busy reply shows the highest token of the holder", "shown", "explore", 3},
	ruleShownYoung:  {"a young node shows no holder", "shown", "storm", 541},
	ruleOvertake:    {"a Release is sent after the end of each Acquire", "no grant", "shorten", 45},
	ruleTombstone:   {"an Acquire without an answer leaves a tombstone", "no grant", "shorten", 27},
	ruleReplayed:    {"a replayed answer is no answer", "no grant", "shorten", 371},
	ruleRetake:      {"a node that lost the name is asked again", "lease lost", "keeps", 1},
	ruleRetakeAbove: {"a re-take has a token above all earlier ones", "lease lost", "keeps", 1},
	ruleExtendOnce:  {"an Extend is sent once", "two holders", "shorten", 3148},
	ruleExactOpen:   {"a node with an unanswered exact Extend does not count", "two holders", "shorten", 6227},
	ruleYoung:       {"a young node does not count for a grant", "two holders", "storm", 1},
	ruleYoungHeld:   {"a young node does not count as held", "two holders", "young", 3},
	ruleLargestTTL:  {"the delay is the largest TTL of all clients", "two holders", "storm", 413},
}
