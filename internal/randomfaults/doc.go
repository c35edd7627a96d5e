// Package randomfaults has one campaign: several worker processes use locks and session stores, on one node, Sentinel, Cluster
// and in memory, while faults strike at random: workers are killed, stopped, cut off, starved and shut down, servers are
// replaced, restarted empty, paused, filled up and made to forget their scripts, rights are missing, and other programs put
// their data in the way. What the workers do is judged while it goes on.
//
//	make faults MINUTES=30
//	make faults MINUTES=5 ON=cluster SEED=42
//	make faults FLAGS="-table table.md"
//
// The ordinary run lasts for a minute. All choices of a run, that is which fault strikes when, whom, and for how long, are
// drawn from streams of one seed, which is printed; SEED repeats them. What the machine makes of them differs from run to
// run.
//
// # Who does what
//
// The test's own process is the parent. It starts the servers, the workers, and the faults, one of a worker and one of a
// server at a time, and it has the register and the ledger, which are in its memory and never struck. Workers talk to it
// over a Unix socket, and wait for each answer. mem is one process, whose workers are Lockers over one driver.
//
// Leases. Under each lease a worker enters the register, with the key and the token, works, and leaves. With enter it tells
// when its acquisition began and returned; with leave a moment at which its lease was still held by its own word (it has
// read the clock before it asked the lease), or, if it was lost, when its context was cancelled. All processes share a
// clock. The register says:
//
//   - S1 is broken if a worker still trusted its lease when another one, who has come in with a higher token, had its own:
//     the moment at which the first has trusted is after that at which the register saw the second. So is it if one is
//     refused because of a higher token, and trusts its lease after that. No stall of any process can make this up, and
//     none excuses it.
//   - N is broken if the context of the first was cancelled, but only after the second had come in, or never. That is a
//     matter of milliseconds, which a process that is not let run does not have: gaps in its own heartbeat between 40 ms
//     before the second came and the moment of the cancellation excuse it if they are, in all, at least as long as it was
//     late. (A lease of 1 s tells its holder 32 ms before others may come.) Such cases are counted, and those outside all
//     windows printed with the totals. A Locker that is closed gives back just after it has told: 20 ms are not held
//     against it.
//   - Tokens rise: who began to ask after another's acquisition had returned has a higher token. No fault excuses a token
//     that falls.
//   - L is broken if a worker was killed, or told to shut down, while it worked with a key that others want, and nobody
//     else works with that key within a TTL and a second; likewise if the first in line is killed, from when the holder has
//     left. That is promised if nothing else happens: where another fault was felt, or the parent stood for a tenth of
//     the time or more (by ticks of 10 ms that came more than 20 ms late), it is counted apart. To have enough of the
//     rest, half of these faults wait until nothing else is felt.
//
// A worker that is killed takes along what it has not said: who met it is not judged.
//
// A fault counts if it has struck: a holder that is killed or stopped holds what others want, a waiter stands in line, a
// reply was lost, a worker's connection closed. One that came to nothing is counted apart, and so is one for which the
// others were not over in time. Of what a worker does to itself, of a slow network, and of other programs' data, it counts
// that somebody was there to meet it.
//
// Turns. Workers load, think and save in turns, with turn IDs; some messages are answered by several at once, some again
// after they were answered. A worker that was stopped for longer than its lease writes past all checks when it goes on.
// Each attempt ends in the ledger: which token it had, when its Load and its write were sent and answered, and how it
// ended. When the time of a session is over, and before a server is emptied, its content is read, and
//
//   - S2 is broken if a write stands there, or was acknowledged, that was sent when somebody with a higher token had
//     loaded, or if it stands behind one with a higher token. No fault excuses it; but a server that lost the Load cannot
//     know of it.
//   - Package integrity judges the rest: nothing acknowledged is lost, doubled, torn, out of order, or answers what does
//     not stand there.
//   - Sessions with Clears and with Saves outside turns have a judgement of their own: an exchange that was acknowledged
//     stands there unless a Clear may have come since, and does not if one that was acknowledged began later, or had a
//     higher token; none stands twice or in halves. A Clear is announced before it is sent, so that the ledger knows of one
//     whose worker was killed.
//
// An attempt whose worker was killed is not in the ledger. What it has stored counts as not known: it may stand there or
// not, and has to be right in every other way.
//
// # Names, content, and what other programs do
//
// Half of the names end with what a protocol, a script or a shell takes for something else, and a quarter of the messages
// have such a body, now and then one of 256 KiB. They are judged as all others. A body depends on its turn alone, so the
// judge knows each: one that comes back otherwise is a violation, and so is a lock by a name that none may have. Errors, log
// lines and spans of the workers are searched for names, which none may show.
//
// Other programs put text, a list or a hash where a lock or a session is to be that nobody has used yet, and all workers
// ask for it. (To take the key of a lock that somebody holds would be to delete the lock.) The data has to be there as it was
// when it is taken away, no lock may have been granted and no turn stored meanwhile, and then a lock is granted within a TTL and a
// second. They also add broken entries to sessions in use: in the end, a Load names all of them that the servers have
// kept, and no others. Workers take what a Load shows beside.
//
// Rights are taken away from the servers' default user, who the workers are: those to publish and to subscribe, or that to run
// scripts. There is no judgement of their own for these: all promises hold, and an error that is not one of
// those that callers are told of is a violation, as always.
//
// # Windows
//
// Some faults may break mutual exclusion, as docs/semantics.md says. They have a ✗, and each violation of S1 or N in the
// window of such a fault is counted apart. A context that is never cancelled, or not before the window is over, has no
// excuse, and nothing else has:
//
//   - A worker that is stopped: from then until a TTL after it goes on, for what this worker is told. It cannot be told
//     while it stands, and its timers are late for a moment. It has no excuse to trust its lease then, for it reads the clock;
//     and of others, everything is promised.
//   - A server that restarts empty, and a fail-over that loses the last writes: from when the master is killed until a TTL
//     after there is a master that takes writes. A holder learns of the loss with its next renewal, and no lease outlives
//     its TTL without one. On Cluster the window is for the keys of that master.
//   - Servers that replace a master which is alive, because the machine is too busy for them: nobody has asked for that,
//     but it happens, and what that master goes on to acknowledge is lost. The window begins as long before it is noticed
//     as a master may be silent.
//
// A fail-over for which the master stops to take writes, and dies when its replicas have everything, has no window: nothing
// is lost, and all is promised.
//
// What a server forgets is told from what the library loses by time: an acknowledged turn is forgotten, and counted apart,
// if it was asked for before the master was dead, and answered after it had been cut off from its replicas, less a quarter
// of a second of which replicas may lack behind. On a server that restarts empty that is all there was before. A Clear
// that was forgotten, another program's data, an answer that comes from what was forgotten, and a write that only a Load
// that was forgotten would have had refused, are counted apart too. Turns that are torn or doubled, tokens that fall and
// stale writes have no excuse.
//
// # Histories
//
// Keys and sessions are new every 10 seconds. Of each such epoch, all that is done with one key, and for four seconds with
// one session, is also written to a history, by each process to a file of its own; package history checks it against its
// models when the epoch is over. A violation of a model is one of the campaign. The parent notes before it kills or stops
// somebody; a process that shuts down, or closes a Locker, gives back what its holders then find gone, and is noted as one
// that was killed. Of a session whose server has forgotten something it is not known what was kept: its history is not
// checked.
//
// A history that is not decided within five seconds is checked again when the run is over, for up to 30 seconds; all of them
// together take two minutes at most, and half as long as the run. What is undecided then is not known to be right: one in twenty
// histories, or one, may be, and more fail the run. Their share has to be small, because a promise could be broken in just
// those; none at all would have a run fail for what is a property of the checker, which tries the places of all operations
// of unknown outcome.
//
// # What is not covered
//
// Clocks that run apart or jump; rights that are missing in the middle of a script; foreign data at a key in use, at a mark or a
// turn ID, and entries above all tokens; servers of a Sentinel or Cluster that load; Sentinels that die; locks and sessions on
// servers of their own. Two names that share a lock would hinder each other, and nobody would notice. Packages faults and history
// have tests of these, or name them. Only as much happens at once as the machine's processors allow.
package randomfaults
