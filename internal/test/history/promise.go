package history

// promise is one clause of a model. A model can leave out a set of clauses. So a violation finds its name,
// and the tests show that each clause is needed.
type promise uint32

const (
	staleWrites promise = 1 << iota
	staleLoads
	refusedWrites
	unfoundedRefusals
	between
	replaces
	forgets
	turnsOnce
	clears
	entriesOnce
	order
	nothingLost
	wholeEntries
	conflicts
	deletions
)

// promises are all clauses, in the order in which explain tries them. A clause stands before clauses of
// which it is a part.
var promises = []struct {
	promise
	letter, text string
}{
	{refusedWrites, "S2", "a write that was refused is not stored"},
	{entriesOnce, "O", "an entry that was saved once stands there once"},
	{turnsOnce, "O", "a Save that is repeated with its turn ID is stored once"},
	{order, "O", "Saves stand in the order in which their leases were granted, and of one lease in the order in which they were made"},
	{between, "O", "a Replace, Clear or Delete is one step: a reader sees the history before it or after it, never between"},
	{replaces, "O", "an acknowledged Replace has put its entries in the place of its range, for good; a refused one has done nothing"},
	{forgets, "O", "after a Delete, no turn ID is known"},
	{nothingLost, "O", "a Save that was acknowledged stays, and every Load that begins later shows it"},
	{clears, "O", "nothing from before a Clear or Delete, and nothing of an older lease, stands there after it"},
	{wholeEntries, "O", "each stored entry was saved, and is whole: all messages of one Save, next to each other"},
	{staleWrites, "S2", "no write below the highest token that the store was shown is accepted"},
	{staleLoads, "S2", "the first access under a lease below the highest token that the store was shown is refused, also if it only reads"},
	{unfoundedRefusals, "S2", "a token is refused as stale only if a higher one was shown"},
	{conflicts, "O", "a Save is refused for its turn ID only if that was used with other messages"},
	{deletions, "O", "a turn is refused as deleted only if it has waited for a Delete"},
}
