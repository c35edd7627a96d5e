// Package chaos has one campaign: instances of a service, each a process of its own, answer the messages of many sessions
// while they are killed and stopped in the middle of their turns, and, with Sentinel and Cluster, while masters of Redis die. In
// the end every session is read, and judged by package integrity.
//
// The campaign's own process is the load balancer and the ledger. It hands messages out, to two instances at once now and then,
// hands them out again when an instance has died, failed or says nothing, and knows what was acknowledged, so that no instance
// takes that along. Its instances run turns as a service would: load, a model that notes how many messages it saw, save. An
// instance that was stopped for longer than its lease lasts writes at once when it goes on, also past all checks of its own: then
// the store alone can refuse.
//
// Beside the sessions with turns there are some with Saves outside of turns and with Clears. These have checks of their own, see
// judgeNotes.
//
// # What the server forgot
//
// Redis acknowledges before its replicas have the data. When a master dies, its end may be missing from the replica that takes
// over. The campaign tells that from what the library lost: after the master has died, and before a replica is promoted, it asks
// each replica for the last entry of every session. An acknowledged turn that is missing was forgotten by the server if, in some
// fail-over,
//
//   - the call that acknowledged it was made before the master had died, and
//   - its place, under the token of its lease, is behind the last entry of the replica that was promoted.
//
// All others that are missing were lost. Places only rise in a session, so a turn that is missing before one that was
// replicated is lost, not forgotten. An acknowledgement of a forgotten turn counts as not given; everything else is judged as without a
// fail-over. One more thing can follow from it: who has loaded from the dead master what was then forgotten, and saves to the
// new one, has seen more than stands there. Such an answer is counted apart as well, if its place is behind that last entry and its Load
// was made before the master had died.
//
// A turn ID is remembered by the script that writes the entry. A replica has both or neither: a message that is handed out
// again is stored once, and one that was forgotten is stored again.
//
// For a Save outside of a turn nobody is told its place. It counts as forgotten if it is missing, and was acknowledged in the last second before
// the master was dead.
//
// If servers replace a master that is alive, as they do when the machine is too busy for their time-outs, nobody knows what was
// replicated. The campaign notices that, and ends without a verdict.
//
// The ordinary run is short. make chaos runs the campaign in full; the flags are listed by
//
//	go test ./internal/chaos -args -help
package chaos
