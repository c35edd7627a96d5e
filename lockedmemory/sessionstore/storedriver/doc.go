// Package storedriver is the seam between a session store and the service that keeps the sessions. Users of
// a store do not need it.
//
// A backend implements [Driver] and runs storetest.Run against a real instance of its service. The
// work is divided so that a driver stays small. A driver keeps entries in the order of their
// places. It decides atomically, with the data of the service, whether a write may stand. Codecs,
// limits of reads, queries and the meaning of a refusal are the store's.
//
// # What a driver decides
//
// A session has a mark: the highest place that it has seen. Each call below is one atomic step of the
// service:
//
//	call                 takes effect if                               and leaves as the mark
//	a write              its token is not below the mark's and its     its place
//	                     place is above the mark
//	Append, ID known     -, nothing is written                         the token, with n = 0, if that is above
//	Append, gone         -, nothing is written                         the mark
//	NotEmpty, Full       -, nothing is written                         its place, or the token with n = 0
//	Range                -, nothing is written                         as NotEmpty, or the mark
//	Read, FirstAccess    its token is not below the mark's             the token, with n = 0, if that is above
//	Read                 always; it checks nothing                     the mark
//
// A Read raises the mark before it reads.
//
// The mark outlives the entries: through Clear, trimming, and a session that is empty. Where a
// session expires, the driver either keeps its mark for longer, for a stated time, or asks the lock
// service for the present owner of the lock; [Unowned] is the refusal then. A refused Append leaves
// the mark as it was.
//
// An Append is gone if the session has no entry, the lease has seen one, and no Clear explains
// that: see [Access].HistoryUpTo and the table of states in docs/design/sessions.md.
//
// The first access of a lease trims: entries beyond Retention.MaxExchanges and MaxAge, in whole turns,
// but never the newest turn. It may leave a part for the next lease. All entries under one token are a
// turn. ⚑ Pinned entries stay. The limits and the newest turn are those of the other entries.
//
// Write.Op is the identity of a write. The store gives the same one, at the same place, when it
// sends a write again. Clients of services may send a write again by themselves. The driver answers
// the copy as it answered the first one, as long as the first one's entry stands there or nothing
// came after it.
//
// An ID has a record: the digest of its messages and the place, without the sub-place. The record
// outlives the entry, for Retention.RememberIDs. A Read with an ID returns the entry at that place, or
// the one that a Replace has put there under the ID.
//
// A driver of this module that knows the server of the lock may release the lock in the step of the last
// Append of a lease, see internal/lastwrite. It leaves the lock alone unless the Append is Done or Known.
//
// # Tasks of the store
//
// A driver returns raw errors and does not try again. It does not judge a lease by the clock of its
// process. It does not look into messages. The store makes no call for a ctx that has ended.
package storedriver
