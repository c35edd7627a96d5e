// Package tracing reports the operations of distlock and lockedmemory to OpenTelemetry.
//
// A [Tracing] is a distlock.Observer. Put it into the Options of a Locker. Spans and metrics have the
// scope "beluga.memory.distlock".
//
// # Spans
//
// Every acquire, extend, release and raise of a token becomes a span. So does every turn, and every
// Load and write of a locked memory over that Locker:
//
//	distlock.acquire     distlock.extend        distlock.release
//	distlock.raise_token
//	lockedmemory.turn    lockedmemory.answer    lockedmemory.load
//	lockedmemory.save    lockedmemory.append
//	lockedmemory.replace lockedmemory.clear     lockedmemory.delete
//
// A lost lease is the event distlock.lost on the span that was current when the lease was acquired. If
// that span has ended, the event has a span distlock.lost of its own in the same trace.
// A distlock.acquire that found the lock busy is linked to the span under which the last known
// holder had acquired the lock. The link crosses processes: the lock carries the trace context.
//
// Attributes:
//
//	lock_key            the key: hashed unless WithKeyAttribute sets another mode
//	acquired            of distlock.acquire: whether the lock was granted
//	distlock.backend    "redis", "memory", …
//	distlock.outcome    acquired, done, busy, timeout, cancelled, unavailable, refused,
//	                    unknown, lost, failed, stale, conflict
//	distlock.attempts   the number of requests to the lock service
//	distlock.wait_ms    of distlock.acquire: milliseconds from the call to the grant or its refusal;
//	                    of a turn or answer: until its function begins
//	distlock.held_ms    of a turn or answer: milliseconds from there to the end of its function, or to
//	                    the loss of the lease; 0 inside another turn, and without the lock
//	lockedmemory.exchanges  of a turn or answer: how many of its Saves were stored
//	distlock.ttl_ms     the requested TTL in milliseconds
//	distlock.fence      the fencing token
//	distlock.handoff    of a granted distlock.acquire: none, local or remote, see below;
//	                    of a distlock.release: local, after a handoff within the process
//	distlock.scheduled  of distlock.extend: true for a renewal by the schedule
//	distlock.nodes      of a lock on a quorum of nodes: how many nodes there are
//	distlock.quorum     and how many of them have to agree
//
// The handoff of a distlock.acquire is
//
//	none    if the lock was free when the lock service was asked
//	local   if another lease of this process handed the lock off, without the lock service;
//	        then this acquire and that release have no distlock.attempts
//	remote  if the lock service handed the lock off to this process, which had queued there
//
// The link shows the last holder that the lock service or this process knew of. A lock that is
// handed off within a process keeps the trace context of its first holder there. Waiters of other
// processes are linked to that holder.
//
// On a quorum, each answer of a node is the event distlock.node, with the attributes
//
//	distlock.node          its name, as host:port
//	distlock.node.answer   a word, as granted or busy, or the text of an error
//	distlock.node.took_ms  milliseconds from the request to the answer
//
// Answers after the end of the operation have no event, and neither have those to scheduled renewals,
// which share requests.
//
// Outcomes busy, timeout and cancelled are results of contention. Every other failure sets the span's
// status to error and records the error.
//
// # Metrics
//
//	distlock.acquire.duration  histogram, s   each ended Acquire, from the call to its end
//	distlock.hold.duration     histogram, s   each ended lease, from its grant to its end
//	distlock.waiters           up-down count  calls of Acquire that have not ended
//	distlock.held              up-down count  leases that have not ended
//	distlock.lost              counter        leases that ended by a loss
//	distlock.renew.failures    counter        scheduled renewals that failed
//	sessionstore.stale_writes  counter        writes that the store refused as stale
//	sessionstore.conflicts     counter        writes refused because the turn ID was used for other messages
//
// All have the attribute distlock.backend. The acquire.duration and renew.failures have distlock.outcome, and
// the duration of a granted Acquire has distlock.handoff. No other attribute exists, so a backend has at
// most 24 attribute sets. Each measurement is made under the context of the span: with the SDK's default,
// a sampled span becomes an exemplar.
package tracing
