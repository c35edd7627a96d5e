// Package redisstore keeps sessions in Redis 6.2 or newer: on one node, behind Sentinels, or in a Cluster, by the client that go-redis
// makes for it. What its stores promise is in package sessionstore; this is how.
//
// # What stands in Redis
//
// For the session with the key K in the store's namespace N ("session" by default), K with '%' and '}' written as %25 and %7D:
//
//	N:{K}:log          the session (stream)
//	N:{K}:turn:<hash>  a turn ID, by 32 hexadecimal digits of its SHA-256: the digest of what was saved under it; expires after
//	                   Options.RememberTurns
//	N:{K}:mark         the place of the last mark, see below, and so the highest token that was shown under a lease; with an
//	                   Options.IdleTTL, expires 24 hours after the log
//
// The lock's keys begin with <the Locker's namespace>:{K}: and so all of them are in one slot of a Cluster.
//
// An entry of the log stands at <fencing token>-<n>, the n-th write under that lease, and is one of these:
//
//	op <32 hexadecimal digits> in <input> out <output> [id <turn ID>]   a Save
//	mark ""                                                             the holder of this token has been here; n is 0
//	clear <op>                                                          all before this was cleared
//
// The last two are marks. What is neither a Save nor a mark is another program's: it is reported, and left as it is.
//
// A stream takes rising IDs alone. So Redis itself refuses a stale writer, keeps the order, and keeps a pair whole; and a Save that
// is not the first access under its lease, and has no turn ID, needs no script: it is an XADD.
//
// # The states of a session
//
//	state     the log                              a token below f   f                      above f
//	absent    is not there: never was, or expired  the guard decides about any token
//	shown     ends with a mark at f-0              refused           writes go to f-1, …    shown
//	written   ends with an entry at f-n            refused           writes go to f-n+1, …  shown, and the entries stay
//	cleared   is a clear at f-n, and nothing else  refused           writes go to f-n+1, …  shown
//
// A lease whose token is refused at its first access is asked about: Lease.Refence has the lock grant a higher token to its present owner,
// and to nobody else. The owner then goes on; anybody else has lost the lease. A lease whose token is refused later has lost it at once.
//
// The guard of a log that is not there tells whether it has forgotten a higher token. It is the key of the mark, which outlives the log; and
// the lock, where that is on the same Redis and both go over one client: the token has to be one of those that were granted to the lock's
// present owner.
//
// # The scripts
//
//	script   what it checks                                             repeated
//	show     token >= that of the last entry; leaves a mark             the same again
//	append   the turn ID, if there is one; place above the last entry   the op tells its copy: the same again
//	clear    place above the last entry                                 the op tells its copy, until a write follows: then refused
//
// Each happens at one moment. If a command after the write fails, for want of a right, the reply is
// the error WRITTEN with the text of Redis, and the outcome of the call is unknown. Every other
// error of a script means that nothing was written.
//
// A Load under a lease that has been shown reads, and checks nothing: lockedmemory checks the lease
// by the clock before it. A pipeline, with show in front of the reading, is what the first Load of
// a turn sends.
//
// # Rules, and why not the obvious way
//
//   - The first access under a lease leaves a mark, also if it only reads. Otherwise a paused older holder could still write while the
//     new one waits for its model, and the answer would be to a history that is no more. The mark is an entry, because XSETID, which sets a
//     stream's last ID, lowers it as well.
//   - The log never ends without the highest place that it has seen: a mark goes only when the next holder has come, and a Clear leaves
//     one. A stream that is emptied remembers its last ID, but not everywhere, and not when it expires.
//   - The next holder finds the mark by a key beside the log. To look at the last entry instead would have every script read a whole Save.
//   - A token is shown before anything is read, in the same pipeline: what is written under a lower one cannot come after what was read.
//   - A place is given out once, whatever became of its write: a late copy of that must not stand where another write is to stand.
//   - Every entry carries the identity of its write, the op. go-redis sends requests again by itself; the copy is told "equal or
//     smaller", and the op tells success from a place that another one has taken.
//   - A Save outside a turn takes the lock first, and writes under its token. Without a token from
//     before, no place would refuse a late packet, and it would undo a Clear.
//   - The turn ID and its entry are written by one script: a replica or a file that has one of them has the other.
//   - A turn ID that is known is success also for a lease that is over, or while another process has the session: what was to be
//     stored has been.
//   - Tokens are below 2^53, and Lua formats them with %.0f: more digits than 14 do not survive its own way.
//
// # One client for lock and store
//
// Give [New] the very client that redislock.New was given. Then the lock is the guard of a session
// that is not there. The store cannot know where another client leads, even one with the same address.
//
// With two clients, whether the lock is on another Redis or not, the guard is the key of the mark
// alone. It outlives the session by 24 hours. After that, an older token is admitted to a session
// that has expired.
//
// # What Redis has to keep
//
// Set maxmemory-policy to noeviction: another one may evict sessions, turn IDs and locks. How much of what was acknowledged a restart
// or a fail-over loses is up to appendfsync and replication; what is lost, is lost with its turn ID and from the end, so order and pairs
// stay.
//
// A session takes one entry for each Save that is kept, and a mark or two. Redis trims whole blocks of entries, so some more than
// Options.MaxExchanges stay; Load and Search do not show these, but Turns does. A turn ID takes a key, for as long as it is remembered, whatever
// becomes of its Save. A session that was cleared, or only opened under a lease, takes one entry until Options.IdleTTL has passed, by
// default for ever. To remove a session by hand, remove its log and leave the key of the mark: it refuses those who had the session before.
//
// # Rights
//
// An ACL user needs ~<namespace>:* of the store and, for sessions, +evalsha +eval +get +set +pexpire
// +xadd +xrange +xrevrange +xdel +xtrim +xinfo|stream; with one client for both, also what package
// redislock lists for the lock. In a Cluster, go-redis itself also needs +cluster|slots +command.
//
// # miniredis
//
// Tests of an application can use miniredis. It runs these scripts, and passes the tests of package storetest once its clock is set to
// run, see Miniredis.ClockTTL; it knows no rights, no replicas and no eviction, and forgets an emptied stream's last ID. It is no
// evidence about Redis.
package redisstore
