// Package driver is the seam between a session store and the service that keeps the sessions. Users of a store need nothing of it.
//
// A backend implements [Driver] and runs storetest.Run against a real instance of its service. The work is divided so that a
// driver stays small: it keeps entries in the order of their places, and decides atomically, with what the service itself
// keeps, whether a write may stand. Everything else (codecs, limits, queries, what a refusal means) is the store's.
//
// # What a driver decides
//
// A session has a mark, the highest [Place] that it has seen. Each call below is one step of the service, with nothing in between:
//
//	call                 takes effect if                               and leaves as the mark
//	Append, Clear        its token is not below the mark's and its     its place
//	                     place is above the mark
//	Append, ID known     -, nothing is written                         the token, with n = 0, if that is above
//	Read, Access.First   its token is not below the mark's             the token, with n = 0, if that is above; then it reads
//	Read                 always; it checks nothing                     what there was
//
// The mark outlives the entries: through Clear, trimming, and a session that is empty. Where a session expires, the driver either keeps its
// mark for longer, for a stated time, or asks the lock service who the owner of the lock is now; [Unowned] is the refusal then. An
// Append that is refused as a [Conflict] leaves the mark as it was.
//
// Write.Op is the identity of a write. The store gives the same one, at the same place, when it sends a write again, and clients of services may do so by
// themselves: the copy is answered as the first, as long as that one's entry stands there or nothing came after it.
//
// # What is not a driver's business
//
// It returns raw errors, which mean that the outcome is unknown, and does not try again. It does not look at the clock of its process to judge a
// lease, and need not watch ctx: the store leaves when that ends. It does not look into messages.
//
// Two interfaces are optional: [Selective] is for sessions that other processes see, [Punctual] for a client
// that keeps deadlines.
package driver
