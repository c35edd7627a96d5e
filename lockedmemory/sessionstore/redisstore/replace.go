package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func (s *sessions) Clear(ctx context.Context, c storedriver.Clear) (storedriver.Verdict, error) {
	keys, args := s.access(c.Access, "", true)
	k := s.keys(c.Session)
	keys, args = append(keys, k.stage, k.inbox), append(args, seq(lockedmemory.Place{N: c.N}), c.Op, c.Forget)
	return s.verdict(ctx, s.scripts.clear, keys, args)
}

func (s *sessions) Replace(ctx context.Context, r storedriver.Replace) (storedriver.Verdict, error) {
	return s.restage(ctx, newRestaging(r))
}

// Fork is a Replace of nothing: the range is zero.
func (s *sessions) Fork(ctx context.Context, f storedriver.Fork) (storedriver.Verdict, error) {
	return s.restage(ctx, newRestaging(storedriver.Replace{Write: f.Write, New: f.New}))
}

// restage makes the steps of a Replace or Fork.
func (s *sessions) restage(ctx context.Context, p *restaging) (v storedriver.Verdict, err error) {
	for done := false; !done && err == nil; {
		v, done, err = s.proceed(ctx, p)
	}
	return v, err
}

// proceed makes the next step.
func (s *sessions) proceed(ctx context.Context, p *restaging) (v storedriver.Verdict, done bool, err error) {
	script, isLast := s.scripts.stage, p.step == swap
	if isLast {
		script = s.scripts.swap
	}
	keys, args := s.access(p.Access, "", isLast || len(p.New) == 0) // the swap frees the old log
	cmd, replayed := script.Run(ctx, s.redis, append(keys, s.keys(p.Session).stage), append(args, p.next(stepEntries)...)...)
	v, done, err = p.takeReply(cmd)
	err = s.explain(err)
	if isLast {
		v.Replayed = replayed
	} else if err != nil {
		err = &stepError{err}
	}
	return v, done, err
}

// stepError is the error of a step before the last. ⚑ Whatever became of the step and its copies, the log
// is as before.
type stepError struct{ error }

func (e *stepError) Is(target error) bool {
	return target == driver.ErrNotDone || target != driver.ErrReplayed && errors.Is(e.error, target)
}

// restaging is a Replace or Fork that has begun: see stage.lua and swap.lua.
type restaging struct {
	storedriver.Replace
	forks bool // there is no range

	step     step
	staging  string // identity of the staging
	stagings int    // how often a staging has begun
	staged   string // the last place staged
	copied   string // the last place of the log that was looked at
	revision int64
	added    int    // of New
	sub      int64  // the highest sub-place given out
	pins     string // the places of the pinned exchanges staged, see lua/session.lua
}

// step is one of a Replace.
type step int

const (
	begin step = iota
	copyHead
	addNew
	copyTail
	swap
)

// Bounds of a step, beside those of lua/stage.lua.
const (
	stepEntries = 50
	stepBytes   = 64 << 10
	wordBytes   = 32 // that count for each word of an entry
	// maxStagings is how often a staging begins. After that, the service counts as one that cannot answer now.
	maxStagings = 5
)

// header is the first place of a staging.
const header = "0-1"

// replyAgain is a reply of stage.lua and swap.lua beside those of storedriver.Outcome.
const replyAgain = 20

func newRestaging(r storedriver.Replace) *restaging {
	p := &restaging{Replace: r, forks: r.From == lockedmemory.Place{}}
	p.restart()
	return p
}

func (p *restaging) restart() {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	p.staging, p.stagings, p.step = fmt.Sprintf("%x", id), p.stagings+1, begin
}

// next returns the arguments of the next step, which may be sent again. The step adds a number of entries at
// most. See the scripts.
func (p *restaging) next(most int) []any {
	n := seq(lockedmemory.Place{N: p.N})
	switch p.step {
	case begin:
		return []any{p.staging, "begin", p.From.String(), p.To.String(), n, p.Op, p.HistoryUpTo.Fence, seq(p.HistoryUpTo)}
	case copyHead:
		return []any{p.staging, "copy", p.staged, p.copied, "(" + p.From.String()}
	case addNew:
		args, size := []any{p.staging, "add", p.staged}, 0
		for i, e := range p.New[p.added:] {
			if i == most || size >= stepBytes {
				break
			}
			place := e.Place
			if !p.forks {
				place.Sub = p.revision + int64(p.added+i) + 1
			}
			words, n := entryWords(e)
			args = append(append(args, place.String(), len(words)), words...)
			size += n
		}
		return args
	case copyTail:
		return []any{p.staging, "copy", p.staged, p.copied, "+"}
	default:
		return []any{n, p.Op, p.staging, p.staged, p.copied, p.sub, p.pins}
	}
}

// entryWords returns the fields of an entry in the log, and their size as lua/stage.lua counts it.
func entryWords(e storedriver.Entry) (words []any, size int) {
	// The op tells copies of a Save. No Save has this place.
	words = append(words, "op", "")
	for _, m := range e.Messages {
		words = append(words, "m", m)
		size += len(m)
	}
	if e.ID != "" {
		words = append(words, "id", e.ID)
	}
	for _, id := range e.Also {
		words = append(words, "id", id)
	}
	if e.Pinned {
		words = append(words, "pin", "")
	}
	return words, size + wordBytes*len(words)
}

// takeReply takes the reply to the step. done says that the call has its outcome.
func (p *restaging) takeReply(cmd *redis.Cmd) (v storedriver.Verdict, done bool, err error) {
	words, err := cmd.Slice()
	if err != nil {
		return v, false, err
	}
	reply := replyOf(words)
	code := reply.Number()
	switch {
	case code == replyAgain:
		if p.stagings == maxStagings {
			return v, false, fmt.Errorf("%w: the log of the session, or its copy, changes again and again",
				driver.ErrTemporary)
		}
		p.restart()
		return v, false, nil
	case code != int64(storedriver.Done) || p.step == swap || len(reply.Parts) == 0:
		v, _, err = parseVerdict(cmd)
		return v, true, err
	}
	if err := p.advance(reply); err != nil {
		return v, false, err
	}
	if !p.forks && p.revision+int64(len(p.New)) > lockedmemory.MaxSub {
		return storedriver.Verdict{Outcome: storedriver.Full}, true, nil
	}
	return v, false, nil
}

// advance takes the reply to a step of the staging, and chooses the next step.
func (p *restaging) advance(reply *redisconn.Reply) error {
	if p.step == begin {
		// ⚑ A lost mark takes the revision with it. The new places are above those before the range.
		p.revision = max(reply.Number(), p.From.Sub, p.To.Sub)
		p.step, p.staged, p.copied, p.added, p.sub, p.pins = copyHead, header, "0-0", 0, p.revision, ""
		if p.forks {
			p.step, p.copied = addNew, ""
		}
		for _, e := range p.New {
			p.sub = max(p.sub, e.Place.Sub)
		}
		return reply.End()
	}
	staged, copied, added, more := reply.Text(), reply.Text(), reply.Number(), reply.Number() == 1
	sub, pins := reply.Number(), reply.Text()
	if err := reply.End(); err != nil {
		return err
	}
	p.staged, p.added, p.sub, p.pins = staged, p.added+int(added), max(p.sub, sub), p.pins+pins
	if p.step != addNew {
		p.copied = copied
	}
	if more || p.step == addNew && p.added < len(p.New) {
		return nil
	}
	if p.step == copyHead {
		p.copied = p.To.String()
	}
	p.step++
	if p.step == addNew && len(p.New) == 0 || p.step == copyTail && p.forks {
		p.step++
	}
	return nil
}
