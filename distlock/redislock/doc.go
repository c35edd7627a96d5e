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
//	N:{K}:void:<owner> a cancelled acquisition, expires with its TTL
//
// A grant is "<s>:<µs>:<ahead>": the server's time when it was made, and by how many µs its fencing token is ahead of that.
//
// The braces make all keys of a lock hash to one slot of a Cluster. The payload is JSON: the holder's name, and the
// metadata of its Observer.
//
// # The protocol
//
// Every operation is one script, so it happens at one moment, by the server's clock. An acquisition has an identity of
// its own, its owner; it is in one of these states, and every script may be repeated in each of them:
//
//	state      what Redis holds                      acquire            extend        release
//	unknown    nothing of this owner                 granted or busy    not held      not held
//	held       lock with this owner                  same grant again   prolonged     → released
//	expired    nothing, or that it was granted last  void or busy       not held      not held
//	released   counter names it as released          void or busy       not held      success again
//	void       mark of this owner                    void or busy       not held      not held
//
// The counter remembers the last owner that was granted the name, and the last before it that had released it: a copy of
// a release, or of an acquire that is over, is recognised until the second grant after it. An acquire whose answer was
// lost leaves the caller in doubt between unknown and held. It is settled by a release that leaves the mark: whatever copy
// of the acquire arrives within the next TTL finds it, however many others have come and gone.
//
// The fencing token is max(last+1, TIME in µs, floor). The counter makes it rise within the counter's life; the clock
// makes it rise when the counter has expired or Redis has lost its data. A grant reserves the tokens up to
// max(token, TIME + 20,000); the next grant starts above.
//
// # Rights
//
// An ACL user needs ~<namespace>:* and +evalsha +eval +mget +get +set +append +del +pexpire +pttl
// +time. In a Cluster, go-redis itself also needs +cluster|slots +command.
//
// # Clients
//
// Acquires, inspections and most releases go over the caller's client. Extends, clean-ups, and releases that would have to
// wait for a connection go over a second client made from its options, see [New]. Behind Sentinels extends go over the
// caller's too, as long as it has a connection for them, because it alone is told of a fail-over.
//
// An extend is sent once: a copy of one that shortens could arrive late and shorten what was prolonged since. Everything
// else the clients may send again.
package redislock
