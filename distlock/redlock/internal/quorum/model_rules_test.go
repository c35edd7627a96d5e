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
	ruleAbove:       {"a token is accepted only above the last", "token", "flaps", 1},
	ruleLast:        {"nothing lowers the last token", "token", "flaps", 1},
	ruleOwner:       {"tokens are compared with their owner", "two holders", "turns", 10},
	ruleEnd:         {"the end of the block is part of the request", "token", "flaps", 29},
	ruleBlock:       {"a block has 256 tokens", "slow", "turns", 1},
	ruleKeep:        {"a node refuses tokens of which it may have removed the record", "token", "explore", 4},
	ruleNoGrant:     {"a Raise never grants", "no grant", "flaps", 328},
	ruleWritable:    {"not held comes from a node that can write", "lease lost", "explore", 769},
	ruleNodeClock:   {"no token depends on the clock of a client", "token", "storm", 85},
	ruleQuorumClock: {"no proposal before the clocks of a quorum are known", "token", "storm", 5376},
	ruleMedianClock: {"the clock is the quorum-th highest", "no grant", "explore", 10},
	ruleOneToken:    {"acceptances count for one token", "token", "explore", 8612},
	ruleRaiseAll:    {"a higher proposal goes to all nodes", "no grant", "flaps", 28},
	ruleBefore:      {"a lease counts from before the first proposal", "two holders", "flaps", 2},
	ruleNodeOwner:   {"each attempt has a node owner of its own", "two holders", "explore", 1},
	ruleTie:         {"the attempt that has the lowest node goes on", "no winner", "dead", 1},
	ruleHasQuorum:   {"only an owner that has a quorum ends the race", "no winner", "dead", 1},
	ruleLower:       {"a race waits for the answers of lower nodes", "no winner", "dead", 2},
	ruleRace:        {"the orphan of a dead client is in no race", "no winner", "orphan", 1},
	ruleShown:       {"a busy reply shows the highest token of the holder", "shown", "flaps", 1},
	ruleShownYoung:  {"a young node shows no holder", "shown", "storm", 77},
	ruleOvertake:    {"a Release is sent after the end of each Acquire", "no grant", "flaps", 105},
	ruleTombstone:   {"an Acquire without an answer leaves a tombstone", "no grant", "flaps", 28},
	ruleReplayed:    {"a replayed answer is no answer", "no grant", "flaps", 33},
	ruleRetake:      {"a node that lost the name is asked again", "lease lost", "keeps", 1},
	ruleRetakeAbove: {"a re-take has a token above all earlier ones", "lease lost", "keeps", 1},
	ruleYoung:       {"a young node does not count for a grant", "two holders", "storm", 5},
	ruleYoungHeld:   {"a young node does not count as held", "two holders", "young", 3},
	ruleLargestTTL:  {"the delay is the largest TTL of all clients", "two holders", "storm", 154},
}
