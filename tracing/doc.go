// Package tracing reports the operations of distlock and lockedmemory to OpenTelemetry.
//
// A [Tracing] is a distlock.Observer. Put it into the Options of a Locker:
//
//	observer, err := tracing.New() // with the global providers
//	…
//	locker, err := redislock.New(client, &distlock.Options{Observer: observer})
//
// Spans and metrics have the scope "beluga.memory.distlock". [LogHandler] adds the IDs of trace and
// span to log lines. docs/howto/tracing-and-metrics.md lists the metrics and attributes, and the
// questions that they answer. docs/dashboards has a dashboard and alert rules.
//
// # Spans
//
// Every acquire, extend, release and raise of a token becomes a span. So does every turn, and every
// Load and write of a locked memory over that Locker:
//
//	distlock.acquire     distlock.extend        distlock.release
//	distlock.raise_token
//	lockedmemory.turn    lockedmemory.answer    lockedmemory.answer_all
//	lockedmemory.load    lockedmemory.save      lockedmemory.append
//	lockedmemory.replace lockedmemory.clear     lockedmemory.delete
//	lockedmemory.fork    lockedmemory.save_once lockedmemory.stop
//	lockedmemory.put
//
// A lost lease is the event distlock.lost on the span that was current when the lease was acquired. If
// that span has ended, the event has a span distlock.lost of its own in the same trace.
// A distlock.acquire that found the lock busy is linked to the span under which the last known holder
// had acquired the lock. The link crosses processes: the lock carries the trace context. In the same way, a
// lockedmemory.stop is linked to the turn that it has ended.
//
// The attribute lock_key is the key, hashed unless [WithKeyAttribute] sets another mode. The outcomes
// busy, timeout and cancelled are results of contention, and interrupted of a Stop. Every other failure sets
// the span's status to error and records the error.
//
// # Metrics
//
// The attributes are distlock.backend, distlock.namespace, distlock.outcome and distlock.handoff alone, so a
// namespace has at most 24 attribute sets. After the first 20 namespaces of a Tracing, all others are
// other. A sampled span becomes an exemplar of its measurement.
package tracing
