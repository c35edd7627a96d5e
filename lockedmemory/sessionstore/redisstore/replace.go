package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func (s *service) Replace(ctx context.Context, r storedriver.Replace) (v storedriver.Verdict, err error) {
	keys, args := s.access(r.Access, "", len(r.New) == 0)
	p := newReplacing(r, append(keys, s.keys(r.Session).stage), args)
	for done := false; !done && err == nil; {
		v, done, err = s.proceed(ctx, p)
	}
	return v, err
}

// proceed makes the next step of a Replace.
func (s *service) proceed(ctx context.Context, p *replacing) (v storedriver.Verdict, done bool, err error) {
	script, isLast := s.scripts.stage, p.step == swap
	if isLast {
		script = s.scripts.swap
	}
	cmd, replayed := script.Run(ctx, s.redis, p.keys, p.next()...)
	v, done, err = p.answered(cmd)
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
type stepError struct{ err error }

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Is(target error) bool {
	return target == driver.ErrNotDone || target != driver.ErrReplayed && errors.Is(e.err, target)
}

// replacing is a Replace that has begun: see stage.lua and swap.lua.
type replacing struct {
	storedriver.Replace
	keys   []string
	access []any // the first arguments of each script
	most   int   // entries of a step

	step     step
	nonce    string
	begun    int    // how often the staging has begun
	staged   string // the last place staged
	seen     string // the last place of the log that was looked at
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
	// stagings is how often a staging begins. After that, the service counts as one that cannot answer now.
	stagings = 5
)

// header is the first place of a staging.
const header = "0-1"

// replyAgain is a reply of stage.lua and swap.lua beside those of storedriver.Outcome.
const replyAgain = 20

func newReplacing(r storedriver.Replace, keys []string, access []any) *replacing {
	p := &replacing{Replace: r, keys: keys, access: access, most: stepEntries}
	if !p.HasRange() && len(r.New) == 0 { // a Clear
		p.step = swap
		if r.Forget {
			p.nonce = "delete"
		}
	} else {
		p.restart()
	}
	return p
}

func (p *replacing) restart() {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	p.nonce, p.begun, p.step = fmt.Sprintf("%x", nonce), p.begun+1, begin
}

// next returns the arguments of the next step, which may be sent again.
func (p *replacing) next() []any {
	args := append(make([]any, 0, 16), p.access...)
	switch p.step {
	case begin:
		return append(args, p.nonce, "begin", p.From.String(), p.To.String(), seq(lockedmemory.Place{N: p.N}), p.Op,
			p.HistoryUpTo.Fence, seq(p.HistoryUpTo))
	case copyHead:
		return append(args, p.nonce, "copy", p.staged, p.seen, "("+p.From.String())
	case addNew:
		args = append(args, p.nonce, "add", p.staged)
		size := 0
		for i, e := range p.New[p.added:] {
			if i == p.most || size >= stepBytes {
				break
			}
			place := e.Place
			if p.HasRange() {
				place.Sub = p.revision + int64(p.added+i) + 1
			}
			words, n := entryWords(e)
			args = append(append(args, place.String(), len(words)), words...)
			size += n
		}
		return args
	case copyTail:
		return append(args, p.nonce, "copy", p.staged, p.seen, "+")
	default:
		args[0] = tokens(p.Access, true) // the old log goes
		return append(args, seq(lockedmemory.Place{N: p.N}), p.Op, p.nonce, p.staged, p.seen, p.sub, p.pins)
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
	if e.Pinned {
		words = append(words, "pin", "")
	}
	return words, size + wordBytes*len(words)
}

// answered takes the answer of the step. done says that the Replace has its outcome.
func (p *replacing) answered(cmd *redis.Cmd) (v storedriver.Verdict, done bool, err error) {
	words, err := cmd.Slice()
	if err != nil {
		return v, false, err
	}
	reply := replyOf(words)
	code := reply.Number()
	switch {
	case code == replyAgain:
		if p.begun == stagings {
			return v, false, fmt.Errorf("%w: the log of the session, or its copy, changes again and again",
				driver.ErrTemporary)
		}
		p.restart()
		return v, false, nil
	case code != int64(storedriver.Done) || p.step == swap || len(reply.Parts) == 0:
		v, err = parseVerdict(cmd)
		return v, true, err
	}
	if err := p.advance(reply); err != nil {
		return v, false, err
	}
	if p.HasRange() && p.revision+int64(len(p.New)) > lockedmemory.MaxSub {
		return storedriver.Verdict{Outcome: storedriver.Full}, true, nil
	}
	return v, false, nil
}

// advance takes the answer of a step of the staging, and chooses the next step.
func (p *replacing) advance(reply *redisconn.Reply) error {
	if p.step == begin {
		// ⚑ A lost mark takes the revision with it. The new places are above those before the range.
		p.revision = max(reply.Number(), p.From.Sub, p.To.Sub)
		p.step, p.staged, p.seen, p.added, p.sub, p.pins = copyHead, header, "0-0", 0, p.revision, ""
		if !p.HasRange() { // a Fork
			p.step, p.seen = addNew, ""
		}
		for _, e := range p.New {
			p.sub = max(p.sub, e.Place.Sub)
		}
		return reply.End()
	}
	staged, seen, more, sub, pins := reply.Text(), reply.Text(), reply.Number(), reply.Number(), reply.Text()
	if err := reply.End(); err != nil {
		return err
	}
	p.staged = staged
	p.sub = max(p.sub, sub)
	p.pins += pins
	switch p.step {
	case copyHead:
		p.seen = seen
		if more == 0 {
			p.step, p.seen = addNew, p.To.String()
		}
	case addNew:
		n, _ := strconv.Atoi(seen)
		p.added += n
	case copyTail:
		p.seen = seen
		if more == 0 {
			p.step = swap
		}
	}
	if p.step == addNew && p.added == len(p.New) {
		p.step = copyTail
		if !p.HasRange() { // a Fork
			p.step = swap
		}
	}
	return nil
}
