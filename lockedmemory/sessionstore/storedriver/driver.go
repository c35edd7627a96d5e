package storedriver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// Entry is one stored exchange.
type Entry struct {
	Place lockedmemory.Place
	ID    string // of the message; empty if there was none
	// Also are the IDs of the further messages that the exchange answers.
	Also     []string
	Messages [][]byte
	Pinned   bool // no limit removes it
	// Err says that the entry is broken, or that another program has written it. Then only Place and
	// Size are set. Size is in bytes.
	Err  error
	Size int
}

// Access is what calls under a lease have in common.
type Access struct {
	Session string
	// Lease is the one that the call runs under, for a driver that knows the lock service and can ask it.
	Lease *distlock.Lease
	// Fence is its token.
	Fence int64
	// FirstAccess says that the session may not have accepted the token yet. ⚑ A session that has accepted a
	// token refuses every lower one, also if that access has only read.
	FirstAccess bool
	// AcceptedFence is the highest token of the lease that the session has accepted through this store. Zero:
	// none, or the call reads the history. ⚑ A session that has accepted a token between AcceptedFence and
	// Fence refuses the access as Stale: a raised token lifts no lease over a later one.
	AcceptedFence int64
	// Awaited is the token of the lock when the lease began to wait, see fencing.Awaited. Zero: none.
	// If the session was deleted under a token between Awaited and Fence, the access is Deleted.
	Awaited int64
	// Since is the token at which the wait of the lease began, see fencing.Since. Zero: not known, or no
	// FirstAccess. If the session was stopped under a token above Since, the access is Ended.
	Since int64
	// HistoryUpTo is the highest place that the lease has read or stored. Zero: none. If the session has no
	// exchange now, and no Clear above that place says why, the access is Gone.
	HistoryUpTo lockedmemory.Place
}

// Write is what the writes have in common. A copy of it, by a client that replays requests, is
// answered as the first.
type Write struct {
	Access
	N  int64  // number of the write under Fence, from 1
	Op string // identity of this one write, 32 hexadecimal digits; never used again
}

// Append writes an entry. If all its IDs are known with the digest, it is Known. If its only ID is closed, the outcome
// says so. Otherwise, if one of the IDs is known or closed, it is a Conflict, and writes nothing. Else one step
// remembers the IDs, writes the entry, closes the superseded messages that are open, and removes all of them from the
// inbox.
type Append struct {
	Write
	Content
	// Superseded are IDs of messages that the entry does not answer.
	Superseded []string
}

// Content is one exchange to be written.
type Content struct {
	Messages [][]byte
	// IDs are that of the entry and its Also, or none. They are remembered with Digest and the place, for
	// Retention.RememberIDs, whatever becomes of the entry.
	IDs    []string
	Digest [16]byte // of Messages
}

// Put keeps a question in the inbox of a session for InboxLife, without a lease. The rules, in this order:
//
//   - If the token of the last Delete is not Deleted, the outcome is Deleted, with that token as the Mark.
//     ⚑ So a copy that arrives late puts nothing into a session that was deleted since.
//   - If the ID is known or closed, the outcome says so, and nothing is kept.
//   - If the ID is pending, the outcome is Done, and the question stays as it is.
//   - If the inbox has InboxMax questions, or would have more than InboxBytes of IDs and questions, the outcome is
//     Full. An empty inbox takes any question.
//   - The question arrives after all others of the inbox, by the clock of the service.
//
// Expired questions count for nothing.
type Put struct {
	Session  string
	Deleted  int64
	ID       string
	Question []byte
}

// The bounds of an inbox.
const (
	InboxLife  = 24 * time.Hour
	InboxMax   = 100
	InboxBytes = 1 << 20
)

// Item is a question that is pending: in the inbox for less than InboxLife, and neither known nor closed.
type Item struct {
	ID       string
	Question []byte
	Age      time.Duration // since its Put
}

// Replace removes a range of entries and puts others in their place, in one step that readers see
// whole.
type Replace struct {
	Write
	// From and To are the first and the last entry of the range. Both are in the session, or the call
	// has no effect, see Range.
	From, To lockedmemory.Place
	// New are the entries that take their place, in order. They alone may be Pinned. Fence and N of their
	// Places lie in the range and do not fall. The driver gives them sub-places that no entry of the
	// session has had.
	New []Entry
}

// Clear removes all entries.
type Clear struct {
	Write
	// Forget also removes the IDs and the inbox: the call is a Delete. The session keeps the token of its last Delete, see
	// Access.Awaited.
	Forget bool
}

// Fork puts entries into a session without an entry, in one step that readers see whole.
type Fork struct {
	Write
	// New are in order and keep their Places, which are below that of the call. Later sub-places are above
	// theirs.
	New []Entry
}

// Verdict is the outcome of a call under a lease.
type Verdict struct {
	Outcome Outcome
	// Mark is the highest place the session has seen, with Stale. Of a Read that is Done, its token alone
	// counts, see Retention.Since. Of a Put that is Deleted, the token of the last Delete. Of a Close, see CloseRequest.
	Mark lockedmemory.Place
	// Replayed says that the client may have sent the request more than once.
	Replayed bool
}

// Outcome is that of a Verdict.
type Outcome int

const (
	// Done: the call took effect, now or before.
	Done Outcome = iota
	// Known: the ID is known, with the same digest. Nothing was written. The token was shown, unless
	// that failed or it was refused.
	Known
	// Conflict: the ID is known, with another digest. Nothing was written.
	Conflict
	// Taken: another write under the same token has the place or a higher one. Nothing was written.
	Taken
	// Stale: the session has seen a higher token, in Mark. Nothing was written.
	Stale
	// Unowned: the session has no exchange, so a higher token may have expired with it, and the lock
	// has another owner now, or none. Nothing was written.
	Unowned
	// Gone: the exchanges up to Access.HistoryUpTo have disappeared: the session has expired, or was
	// deleted. Nothing was written. Only Append and Replace have this outcome.
	Gone
	// Range: the session has no entry at Replace.From or Replace.To. Nothing was written.
	Range
	// Full: the session has no sub-place left for Replace.New, until a Clear, or its inbox has no room. Nothing
	// was written.
	Full
	// Deleted: the session was deleted while the lease waited, see Access.Awaited, or since the token that a Put
	// names. Nothing was written.
	Deleted
	// NotEmpty: the session has an entry, so it takes no Fork. Nothing was written.
	NotEmpty
	// Stopped: the ID is closed, see CloseRequest. Nothing was written.
	Stopped
	// Superseded: as Stopped, by a newer message.
	Superseded
	// Ended: the lease began to wait before a Stop of the session, see Access.Since. Nothing was written.
	Ended
)

// Refuses reports whether the state of the session has refused a call, or a copy of it. An ID that is
// closed was never stored by a copy, nor will be.
func (o Outcome) Refuses() bool { return o != Done && o != Known && o != Stopped && o != Superseded }

// HashID returns the hash that a CloseRequest names an ID by: 32 hexadecimal digits, of the first 16 bytes of
// its SHA-256. A lock shows its holder's work by this hash alone.
func HashID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// CloseRequest decides, without a lease, that a message is never answered. ID and By are hashes of IDs, see
// HashID, or empty. The steps, in this order, are one atomic step:
//
//   - If By is answered or closed, the call does nothing more.
//   - If Below is positive and the mark has a token of at least Below, the call does nothing more.
//   - If Below is 0, By arrives if it never has: it is the newest message of the session.
//   - If Below is positive, By has arrived and is not the newest, and the newest is not closed, then By is
//     closed as superseded, and the call does nothing more.
//   - The token of the mark rises to Mark, and the token of the last stop to Stop, if they are lower.
//     ⚑ Without a check of ownership, also of a session of which nothing is known.
//   - ID is closed, if it is not answered or closed: as superseded if Below is positive, else as stopped. It is
//     no item of the inbox any more.
//
// A closed ID, and an arrival, are remembered for Retention.RememberIDs. A copy of a call that arrives
// late changes nothing that came later.
//
// The outcome is that of By if it is decided. Else it is that of ID if Below is 0, or Done. It is Known of an
// answered ID, and Stopped or Superseded of a closed one, by this call or before. The Mark is that before the call.
type CloseRequest struct {
	Session, ID, By   string
	Below, Mark, Stop int64
}

// Read asks for entries in the order of their places, or from the last one back.
type Read struct {
	Access   // without a lease, its Session alone
	Backward bool
	// From is where the page before ended, see Page.Last: the first entry is the next one in the
	// direction of the Read. Zero: the first entry of all, or with Backward the last.
	From  lockedmemory.Place
	Limit int // at least 1
	// Next says that other pages of the same read came before.
	Next bool
	// Pinned are the places that Page.Pinned of the first page had. With PinnedOnly, the Read asks for the
	// entries at these places alone, and Backward, From and Limit have no meaning.
	Pinned     []lockedmemory.Place
	PinnedOnly bool
	// ID, if not empty, asks for the entry stored under the ID alone, and for whether the ID is known, as of
	// one moment. Backward, From and Limit have no meaning then.
	ID string
}

// Page is the answer to a Read.
type Page struct {
	Verdict
	// Entries are at most Limit.
	Entries []Entry
	// Last is where to go on, for Read.From. Zero: there is no more.
	Last lockedmemory.Place
	// Oldest is a place with no older exchange that is not pinned: that of the first such entry or
	// marker of the session, or, without one, a place above all exchanges. Zero: not known. It is known
	// for a Read with From, as of the moment of the entries or later. Entries below it are no longer
	// history.
	Oldest lockedmemory.Place
	// Revision changes with each Replace, Fork and Clear. It is that of the moment of the entries or
	// before, and with Read.Next of that moment or later.
	Revision int64
	// Changed says that the entries and Pinned may be of two moments. The caller begins again.
	Changed bool
	// Pinned are the places of the pinned entries, in order, as of Revision. It may have places of a session
	// that has expired since.
	Pinned []lockedmemory.Place
	// Known says that Read.ID is known and not closed. The Outcome of a closed ID is Stopped or Superseded,
	// after the token was shown. Without an entry, that is no longer in the session: it was
	// replaced or trimmed, or the session was cleared or has expired.
	Known bool
}

// Driver keeps sessions. It is safe for concurrent use. Methods block until the service has answered
// or ctx ends, and no longer. The kind of an error, see MayHaveEffect in package driver of distlock,
// names the outcome of the call. An error of no kind is an unknown outcome.
type Driver interface {
	// Append writes an entry if no higher token was shown, no other write has its place or a higher
	// one, none of its IDs is known, and the history is not gone.
	Append(ctx context.Context, a Append) (Verdict, error)
	// Replace puts entries in the place of others if no higher token was shown and no other write has
	// its place or a higher one. Its place stays taken, and IDs stay known. No byte of the removed
	// entries remains in the service.
	Replace(ctx context.Context, r Replace) (Verdict, error)
	// Clear removes all entries as Replace does.
	Clear(ctx context.Context, c Clear) (Verdict, error)
	// Fork writes entries into an empty session under the conditions of Replace.
	Fork(ctx context.Context, f Fork) (Verdict, error)
	// Close decides an ID, and raises the mark, without a lease. It works in a service without memory as far
	// as a Clear does.
	Close(ctx context.Context, c CloseRequest) (Verdict, error)
	// Read returns entries. On the FirstAccess, the token is shown before anything is read.
	Read(ctx context.Context, r Read) (Page, error)
	// Sessions returns a page of the names of the sessions that have an entry. A session that has entries
	// while all pages are read is on one page or more. after is the next of the page before, and empty for
	// the first page; next is empty after the last page. The order is the driver's. A service answers in
	// bounded pages. A page may be empty with a next page.
	Sessions(ctx context.Context, after string) (names []string, next string, err error)
	// Put keeps a question. Without memory in the service, it writes nothing.
	Put(ctx context.Context, p Put) (Verdict, error)
	// Pending returns the items of a session by their arrival, and removes the others. With a first access, it
	// shows the token and refuses as a Read does; without a lease, the Access has its Session alone, and a
	// service without memory answers.
	Pending(ctx context.Context, a Access) (Verdict, []Item, error)
	// Inboxes returns a page of the names of the sessions that may have an item, in the manner of Sessions. A
	// session whose Put was accepted before the first page is on a page, unless it has no item by then.
	Inboxes(ctx context.Context, after string) (names []string, next string, err error)
	// Ping returns nil if the service answers a read. The advice, for operators, is on settings of
	// the service that harm sessions, one sentence each.
	Ping(ctx context.Context) (advice []string, err error)
	// Retention returns what the driver keeps, with the defaults filled in.
	Retention() Retention
	// AcrossProcesses reports whether other processes see the sessions. Then their locks have to be visible to
	// these processes, too.
	AcrossProcesses() bool
}
