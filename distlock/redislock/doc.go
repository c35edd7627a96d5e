// Package redislock keeps locks in Redis: on one node, behind Sentinels, or in a Cluster, by the client that go-redis makes
// for it.
//
// # What stands in Redis
//
// For a lock with the key K in the namespace N, K with '%' and '}' written as %25 and %7D, so that two names never meet:
//
//	N:{K}:lock         "b1:<owner>:<grant>:<payload>", expires with the TTL
//	N:{K}:fence        "<grant>:<released owner>:<last granted owner>", and "!" when that one is released too;
//	                   the name's counter, expires a day after the moment its last token stands for
//	N:{K}:line         those who wait: owners by ticket (sorted set)
//	N:{K}:waiters      "<alive until, ms>:<seq>:<whom to wake>:<payload>" of each of them (hash)
//	N:{K}:void:<owner> a cancelled acquisition, expires after the TTL or 2 minutes, whichever is longer
//
// A grant is "<s>:<µs>:<ahead>": the server's time when it was made, and by how many µs its fencing token is ahead of that.
//
// The braces make all keys of a lock hash to one slot of a Cluster. The payload is JSON: the holder's name, and the
// metadata of its Observer. The keys of the line go when nobody stands in it, or has for a second.
//
// # The protocol
//
// Every operation is one script, so it happens at one moment, by the server's clock. An acquisition has an identity of
// its own, its owner; it is in one of these states, and every script may be repeated in each of them:
//
//	state      what Redis holds                      acquire            extend        release
//	unknown    nothing of this owner                 granted or busy    not held      not held
//	waiting    a place in the line                   keeps its place    not held      leaves the line
//	held       lock with this owner                  same grant again   prolonged     → released
//	expired    counter names it as granted last      void or busy       not held      not held
//	released   counter names it as released          void or busy       not held      success again
//	void       mark of this owner                    void or busy       not held      not held
//
// The counter remembers the last owner that was granted the name, and the last before it that had released it. So a copy of
// a release is recognised until the second grant after its own, and so is a copy of an acquire whose grant was released. An owner
// that has expired is known only until the next grant: nothing has put it in the second place. Whom the counter does not know any
// more is unknown again, and a copy of its acquire would be granted the lock or stand in line.
//
// That is what the mark is for. An acquire of which a copy may be under way (its answer was lost, or the client has sent it
// again) leaves it in doubt whether its owner is unknown, waiting, held or over. It is settled by a release that leaves the mark, whether the
// acquire has failed, or its lease is released or lost: a copy that arrives before the
// mark expires finds the mark, however many others have come and gone.
// An acquire that was sent once, and answered, has no copies and needs no mark.
//
// The fencing token is max(last+1, TIME in µs, floor). The counter makes it rise within the counter's life; the clock
// makes it rise when the counter has expired or Redis has lost its data. A grant reserves the tokens up to
// max(token, TIME + 20,000); the next grant starts above.
//
// # The line
//
// An acquire that finds the lock held may stand in line: its owner gets a ticket, and says for how long it is alive, which
// is a second longer than until it will ask again, and at most nine tenths of a TTL. Whichever script frees the lock, or finds it free, hands it to the first in
// line that is alive, in the same moment; those before it are dropped. Nothing overtakes the line.
//
//	where an owner may be     what takes it there                  what it is told            where it goes
//	asking                    its acquire is under way             granted, busy, or nothing  held, in line
//	in line, asked of late    its acquire was answered "busy"      a hand-over, or nothing    handed over, asking
//	in line, not alive        it has not asked when it would       nothing                    asking; dropped
//	dropped                   another's script, in its turn        nothing                    asking: in line, at its old ticket
//	handed over, told         another's script                     the message                held, provisionally; asking
//	handed over, not told     likewise, the message was lost       nothing                    asking: a claim
//	held, provisionally       it has started its work              –                          held, by a claim; released
//	handed over, too late     it has not claimed in time           the lock is free again     asking: void, a new owner at its old ticket
//	leaving                   its caller has gone                  –                          gone, whatever it was before
//
// A hand-over is a grant that lasts for what is left of the waiter's promise, and a second at least. Its winner may work at once,
// trusting it for that long since it sent the last request that the server had handled before: the hand-over came later. A
// claim is an acquire of the owner that holds the lock, or an extend: either gives it the TTL, counted from its own sending. Work
// that is done sooner needs no claim.
//
// What each message can be too late for:
//
//	message               arrives after                    harm
//	hand-over             its waiter has left              none: nobody listens; leaving has handed the lock on
//	hand-over             its waiter has claimed           none: the claim has the lock
//	hand-over             its grant is over                none: trust counts from the request it names, so it has passed
//	hand-over             a later request of its waiter    none: it names the one before, or counts from that
//	answer "busy"         the hand-over                    none: the waiter had registered before it asked
//	copy of an acquire    its owner has left               a mark refuses it, or it was not sent twice
//	copy of an acquire    its owner was granted the lock   the same grant again
//	copy of a leaving     its owner was granted the lock   none: who leaves has no further use for it
//
// Nobody rests on a message. A waiter asks again when the holder's TTL has passed, after 3 to 5 seconds (less with a short TTL), and
// after every interruption of the connection on which it listens. Where the server lets nobody listen or publish, waiters poll, in line
// all the same. Messages go over one connection per driver, to a channel of its own, N:wake:<driver>.
//
// Who may publish to that channel can forge a hand-over: a waiter whose owner and request it knows then works without the lock,
// for as long as it has promised to wait at most, 6 s, or until its first renewal. Who may write the keys
// of the lock can do the same, and more. Every other message makes a waiter ask once, or does nothing.
//
// A line has at most 1,000 waiters. Those of one Locker on one key count as one.
//
// # Rights
//
// An ACL user needs ~<namespace>:* and +evalsha +eval +mget +get +set +append +del +exists +pexpire +pttl
// +time +zadd +zrem +zrange +zscore +zcard +hset +hget +hgetall +hdel. To be told of hand-overs it also needs &<namespace>:* and
// +publish +subscribe; without, waiters poll. In a Cluster, go-redis itself also needs +cluster|slots +command.
//
// # Clients
//
// The driver has connections of its own, with the options of the client: to the node of a *redis.Client,
// and to each node of a *redis.ClusterClient. So a pool that the application has used up delays no call.
// Hooks of the client (AddHook), as those that trace commands, do not see these calls. package tracing
// reports operations instead. There are at most PoolSize connections to a node, usually one or two. A
// connection is closed after a minute without use, and when the context of its caller ends.
//
// The client itself sends what a node of a Cluster redirects, and the first calls, before it knows the
// nodes. A client that follows Sentinels sends the calls as long as its pool has a free connection,
// because it alone learns of a failover. A client of another type sends all calls. Close the Locker
// before the client: its own connections do not end with the client. docs/design/redis.md states the
// details.
//
// go-redis writes one copy of a script call, unless the server has rejected that copy. If the answer
// is lost, or the server rejects the call for now, the driver sends the call again: MaxRetries times,
// MaxRedirects in a Cluster. So the error says whether a copy may have taken effect, see
// [driver.MayHaveEffect]. An extend is sent once: a late copy of an extend that shortens could undo a
// later one.
package redislock
