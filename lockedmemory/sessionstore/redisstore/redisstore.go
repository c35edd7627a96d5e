package redisstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/rediskeys"
	"github.com/belugalock/belugalock/internal/rediskinds"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// New makes a store for the Redis of client. Give it the client and the KeyFunc of the lock, see
// the package documentation. The caller closes client. New does no I/O. It returns
// distlock.ErrInvalidOption for a nil client, key or codec, for a retention or options out of
// range, and for a client that cannot keep sessions or reads from replicas.
//
// The store has connections of its own, with the options of client, see redislock.New. They end
// with the process.
func New[M, D any](client redis.UniversalClient, key lockedmemory.KeyFunc, codec sessionstore.Codec[M, D],
	keep *sessionstore.Retention, opts *sessionstore.Options) (*sessionstore.Store[M, D], error) {
	d, err := NewDriver(client, keep)
	if err != nil {
		return nil, err
	}
	return sessionstore.New(d, key, codec, opts)
}

// NewDriver makes a driver over client. The caller closes client. NewDriver refuses the clients and
// the retention that [New] refuses.
func NewDriver(client redis.UniversalClient, keep *storedriver.Retention) (storedriver.Driver, error) {
	locks, err := redislock.NewDriver(client) // its connections need no Close, see New
	if err != nil {
		return nil, err
	}
	return NewColocatedDriver(locks, keep)
}

// NewColocatedDriver makes a driver that shares the connections of locks, a driver of package
// redislock. It ends with locks. It refuses other drivers, clients and retentions like [New].
func NewColocatedDriver(locks driver.Driver, keep *storedriver.Retention) (storedriver.Driver, error) {
	beside, ok := driver.As[redisconn.Locks](locks)
	if !ok {
		return nil, fmt.Errorf("%w: the driver of the locks is not of package redislock: make it with redislock.NewDriver",
			distlock.ErrInvalidOption)
	}
	transport := beside.Transport()
	if err := redisconn.RefuseReplicas(transport.Client()); err != nil {
		return nil, fmt.Errorf("%w: %w", distlock.ErrInvalidOption, err)
	}
	kept, err := keep.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &sessions{redis: transport, scripts: newScripts(beside), keep: kept}, nil
}

// sessions is a storedriver.Driver.
type sessions struct {
	redis   *redisconn.Transport
	scripts scripts
	keep    storedriver.Retention
	apart   atomic.Bool // the index is in another slot than a session
}

// keys are the keys of a session. They share their hash tag with the keys of its lock.
type keys struct{ log, mark, ids, stage, inbox string }

func (s *sessions) keys(session string) keys {
	prefix := rediskeys.Prefix(s.keep.Namespace, session)
	return keys{prefix + "log", prefix + "mark", prefix + "ids", prefix + "stage", prefix + "inbox"}
}

// field is that of an ID among all of a session. An ID may be any text.
func field(id string) string {
	sum := sha256.Sum256([]byte(id))
	return string(sum[:16])
}

// lock returns the key of the lock of an access, if its Locker keeps the locks through the store's client.
// Another client, even with the same address, may have another server. isPlain says that no wrapper has to
// see each release.
func (s *sessions) lock(a storedriver.Access) (key string, isPlain bool) {
	if a.Lease == nil { // of a Close
		return "", false
	}
	locker := fencing.Locker(a.Lease)
	d := fencing.Driver(locker)
	locks, ok := driver.As[redisconn.Locks](d)
	if !ok || locks.Transport().Client() != s.redis.Client() {
		return "", false
	}
	_, isPlain = d.(redisconn.Locks)
	return locks.LockKey(fencing.Options(locker).Namespace, a.Session), isPlain
}

// access returns the first keys and arguments of each script; see lua/access.lua. With an owner, the script
// also releases the lock.
func (s *sessions) access(a storedriver.Access, owner string, frees bool) ([]string, []any) {
	k := s.keys(a.Session)
	lock, _ := s.lock(a)
	waits := fmt.Sprintf("%d:%d", a.Awaited, a.Since)
	args := append(make([]any, 0, 24), a.Fence, a.AcceptedFence, waits, frees, lock != "", owner,
		s.keep.IdleTTL.Milliseconds(), storedriver.KeepEmpty.Milliseconds(), s.keep.MaxExchanges, s.keep.MaxAge.Microseconds())
	return []string{k.log, k.mark, cmp.Or(lock, k.mark), k.ids}, args
}

// seq is the second number of the ID that an entry has in the Stream.
func seq(p lockedmemory.Place) int64 { return p.N*(lockedmemory.MaxSub+1) + p.Sub }

func (s *sessions) Append(ctx context.Context, a storedriver.Append) (v storedriver.Verdict, err error) {
	if _, isPlain := s.lock(a.Access); !lastwrite.Is(ctx, a.Lease) || !isPlain {
		v, _, err = s.append(ctx, a, "")
		return v, err
	}
	lastwrite.ReleaseWith(a.Lease, func(owner string) (driver.ReleaseReply, error) {
		var released bool
		v, released, err = s.append(ctx, a, owner)
		return driver.ReleaseReply{Released: released, Replayed: v.Replayed}, err
	})
	return v, err
}

// append appends, and then releases the lock for its owner, unless that is empty.
func (s *sessions) append(ctx context.Context, a storedriver.Append, owner string) (v storedriver.Verdict, released bool, err error) {
	entry := append(make([]any, 0, 2*(1+len(a.Messages)+len(a.IDs))), "op", a.Op)
	for _, message := range a.Messages {
		entry = append(entry, "m", message)
	}
	for _, id := range a.IDs {
		entry = append(entry, "id", id)
	}
	bare := !a.FirstAccess && len(a.IDs) == 0 && owner == ""
	replayed, err := s.redis.Repeat(ctx, func() (err error) {
		if bare {
			if done, err := s.add(ctx, a.Write, entry); done || err != nil {
				return err
			}
			bare = false
		}
		v, released, err = parseVerdict(s.runAppend(ctx, a, entry, owner))
		return err
	})
	v.Replayed = replayed
	return v, released, s.explain(err)
}

func (s *sessions) runAppend(ctx context.Context, a storedriver.Append, entry []any, owner string) *redis.Cmd {
	keys, args := s.access(a.Access, owner, false)
	args = append(args, s.keep.RememberIDs.Milliseconds(), seq(lockedmemory.Place{N: a.N}), a.Op, a.HistoryUpTo.Fence,
		seq(a.HistoryUpTo), fmt.Sprintf("%s%016d%013d", a.Digest[:], a.Fence, a.N), a.FirstAccess, len(a.IDs), len(a.Superseded))
	for _, id := range slices.Concat(a.IDs, a.Superseded) {
		args = append(args, field(id))
	}
	script := s.scripts.append
	if len(a.IDs)+len(a.Superseded) == 0 {
		script = s.scripts.plain
	}
	return script.Once(ctx, s.redis, append(keys, s.keys(a.Session).inbox), append(args, entry...)...)
}

// add appends by XADD alone. done is false if the log is absent, or refused the place. Then a higher
// place, or an earlier copy of this call, is in the log.
func (s *sessions) add(ctx context.Context, w storedriver.Write, entry []any) (done bool, err error) {
	log := s.keys(w.Session).log
	place := lockedmemory.Place{Fence: w.Fence, N: w.N}.String()
	args := append(make([]any, 0, 4+len(entry)), "xadd", log, "nomkstream", place)
	call := redisconn.NewCall(ctx, len(args), append(args, entry...)...)
	cmds := []redis.Cmder{call}
	if s.keep.IdleTTL > 0 {
		cmds = append(cmds, redis.NewBoolCmd(ctx, "pexpire", log, s.keep.IdleTTL.Milliseconds()))
	}
	if err := s.redis.Send(ctx, log, cmds...); err != nil {
		return false, err
	}
	// An error of PEXPIRE is no failure: the exchange is stored.
	err = call.Failure()
	if errors.Is(err, redis.Nil) || redisconn.IsReply(err) && strings.Contains(err.Error(), "equal or smaller") {
		return false, nil
	}
	return err == nil, err
}

func (s *sessions) Retention() storedriver.Retention { return s.keep }

func (s *sessions) AcrossProcesses() bool { return true }

// verdict runs a script that replies one.
func (s *sessions) verdict(ctx context.Context, script *redisconn.Script, keys []string, args []any) (v storedriver.Verdict, err error) {
	cmd, replayed := script.Run(ctx, s.redis, keys, args...)
	v, _, err = parseVerdict(cmd)
	v.Replayed = replayed
	return v, s.explain(err)
}

// parseVerdict reads what the scripts reply. released says that the lock is released, too.
func parseVerdict(cmd *redis.Cmd) (v storedriver.Verdict, released bool, err error) {
	words, err := cmd.Slice()
	if err != nil {
		return v, false, err
	}
	reply := replyOf(words)
	v.Outcome = storedriver.Outcome(reply.Number())
	if len(reply.Parts) > 0 {
		word, isPlace := reply.Text(), false
		v.Mark, isPlace = parsePlace(word)
		if released = word == "released"; !released && !isPlace {
			return v, false, errReply
		}
	}
	return v, released, reply.End()
}

func replyOf(words []any) *redisconn.Reply { return &redisconn.Reply{Parts: words, Unknown: errReply} }

// parsePlace reads the ID of an entry. An ID beyond all places is of another program. It becomes
// the highest place.
func parsePlace(id string) (p lockedmemory.Place, ok bool) {
	ms, seq, _ := strings.Cut(id, "-") // no number is empty
	fence, err := strconv.ParseUint(ms, 10, 64)
	n, err2 := strconv.ParseUint(seq, 10, 64)
	const one = lockedmemory.MaxSub + 1
	fence, n = min(fence, math.MaxInt64), min(n, math.MaxInt64)
	return lockedmemory.Place{Fence: int64(fence), N: int64(n) / one, Sub: int64(n) % one}, err == nil && err2 == nil
}

var errReply = redisconn.UnknownReply("redisstore")

// explain adds advice to an error of Redis. No text names a key.
func (s *sessions) explain(err error) error {
	if err == nil || errors.Is(err, errReply) {
		return err
	}
	return rediskinds.Explain(s.redis.Client(), "redisstore", err)
}
