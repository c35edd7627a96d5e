package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belugalock/belugalock/distlock/driver"
)

var errFull = fmt.Errorf("%w: %w: %d calls of this node are under way",
	driver.ErrTemporary, driver.ErrNotDone, maxCalls)

// nodesError is the error of an operation. ⚑ It wraps its own kinds alone: the error of one node
// says nothing about the others.
type nodesError struct {
	text  string
	kinds []error
}

func (e *nodesError) Error() string   { return e.text }
func (e *nodesError) Unwrap() []error { return e.kinds }

// notDone is the error of a call whose ctx has ended before.
func notDone(ctx context.Context) error {
	return fmt.Errorf("redlock: %w: %w", driver.ErrNotDone, ctx.Err())
}

// failure makes the error of a poll without a decision. ended is the error of the caller's ctx, or
// nil. effect says that the operation may have had an effect.
func (p *poll) failure(ended error, effect bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "redlock: %d of %d nodes have to agree", p.q.size, len(p.answers))
	causes, agreed := make([]error, 0, len(p.answers)), 0
	for i := range p.answers {
		a := p.answers[i]
		if a.err == nil && a.young {
			causes = append(causes, errYoung)
		} else if a.err != nil {
			causes = append(causes, a.err)
		} else if a.done {
			agreed++
		}
		fmt.Fprintf(&text, "; %s: %s", p.q.nodes[i].Name(), p.text(a))
	}
	e := &nodesError{text: text.String()}
	if ended != nil {
		e.kinds = append(e.kinds, ended)
	}
	if !effect {
		e.kinds = append(e.kinds, kinds(causes, agreed, len(p.answers), p.q.size)...)
	}
	return e
}

// errYoung is the cause of a node that does not count yet.
var errYoung = fmt.Errorf("%w: %w", driver.ErrTemporary, driver.ErrNotDone)

// kinds returns the kinds of an operation without an effect: those of so many causes that the other
// nodes are no quorum. ErrTemporary is one if the agreed nodes were a quorum with those that cannot
// answer now. ErrNotDone is always one.
func kinds(causes []error, agreed, nodes, size int) (kinds []error) {
	count := func(kind error) (n int) {
		for _, cause := range causes {
			if errors.Is(cause, kind) {
				n++
			}
		}
		return n
	}
	for _, kind := range []error{driver.ErrRights, driver.ErrRefused, driver.ErrForeign, driver.ErrFloor} {
		if count(kind) > nodes-size {
			kinds = append(kinds, kind)
		}
	}
	if n := count(driver.ErrTemporary); n > 0 && n+agreed >= size && len(kinds) == 0 {
		kinds = append(kinds, driver.ErrTemporary)
	}
	return append(kinds, driver.ErrNotDone)
}
