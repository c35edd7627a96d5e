package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// alone is a quorum of nodes that are not there. Their clocks stand at the given time.
func alone(nodes int, clock int64) *quorum {
	q := &quorum{size: nodes/2 + 1, began: time.Now(), table: newTable()}
	for i := range nodes {
		n := &node{q: q, index: i}
		n.clock.Store(clock)
		q.nodes = append(q.nodes, n)
	}
	return q
}

// The lowest node decides a split vote. All processes have the same one.
func TestNew_sortsNodes(t *testing.T) {
	var nodes []Node
	for _, name := range []string{"b:1", "c:1", "a:1"} {
		nodes = append(nodes, NewMemory(name))
	}
	q := New(nodes, -1).(*quorum)
	defer q.Close()
	for i, want := range []string{"a:1", "b:1", "c:1"} {
		if n := q.nodes[i]; n.Name() != want || n.index != i {
			t.Errorf("node %d is %s, with the index %d", i, n.Name(), n.index)
		}
	}
}

func TestTable_idleEntries_swept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		held := key{owner: "held"}
		table.entry(held, time.Hour)
		table.entry(held, keepEntry)
		for round := range 5 {
			for i := range 3000 {
				table.entry(key{owner: fmt.Sprint(round, i)}, keepEntry)
			}
			time.Sleep(2 * keepEntry)
		}
		if n := len(table.entries); n > 7000 || table.entries[held] == nil {
			t.Errorf("%d entries, the held one: %v", n, table.entries[held])
		}
	})
}

func TestTable_refusedAttempt_leaves(t *testing.T) {
	var nodes []Node
	for _, name := range []string{"a:1", "b:1", "c:1"} {
		nodes = append(nodes, NewMemory(name))
	}
	q := New(nodes, -1).(*quorum)
	defer q.Close()
	for _, owner := range []string{"first", "second"} {
		req := driver.AcquireRequest{Name: driver.Name{Key: "k"}, Owner: owner, TTL: time.Minute}
		if _, err := q.Acquire(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[key{driver.Name{Key: "k"}, "second"}]; e != nil {
		t.Errorf("%+v", e)
	}
}

func TestKnown_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := alone(3, 1000)
		for i := range 3 * mostKnown {
			q.noteToken(driver.Name{Key: fmt.Sprint(i)}, 5000)
		}
		if n := len(q.known); n > mostKnown {
			t.Errorf("%d tokens", n)
		}
	})
}

func TestToken_aboveTheProposedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, name := alone(3, 1000), driver.Name{Key: "k"}
		q.noteToken(name, 2000)
		q.noteToken(name, 1500)
		if got := q.token(name); got != 2001 {
			t.Errorf("%d", got)
		}
		if got := q.token(driver.Name{Key: "other"}); got != 1000 {
			t.Errorf("%d for a name that nothing was proposed for", got)
		}
	})
}

func TestAbove_S2_theOwnBlock(t *testing.T) {
	q := alone(3, 0)
	p := &poll{q: q, answers: []answer{low, low, open}}
	if got := q.above(p, 5000); got != 5000+Block+1 {
		t.Errorf("%d", got)
	}
}

// started is a server that is up for some time.
type started struct {
	Node
	up time.Duration
}

func (s started) Up() time.Duration { return s.up }

func TestYoung_S1_beforeTheCall(t *testing.T) {
	n := &node{q: &quorum{began: time.Now(), restartDelay: 10 * time.Second}, Node: started{up: 10500 * time.Millisecond}}
	if !n.young(time.Second) {
		t.Error("the server was up for less than the delay when the call began")
	}
	if n.young(0) {
		t.Error("the server is up for longer than the delay")
	}
}

// The attempt was released between two of its requests: two nodes are not asked.
func TestPoll_nodesThatAreNotAsked_decide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoll(alone(3, 1000), t.Context(), time.Second)
		for _, n := range p.q.nodes {
			p.expect(n)
		}
		p.note(p.q.nodes[1], answer{})
		p.note(p.q.nodes[2], answer{})
		go func() {
			time.Sleep(time.Millisecond)
			p.note(p.q.nodes[0], accepted)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var d decision
		err := p.wait(ctx, func(answers []answer, timeUp bool) bool {
			d = judge(answers, 2, 1000, 1000, timeUp)
			return d != undecided
		})
		if err != nil || d != failed {
			t.Errorf("%d, %v; want %d", d, err, failed)
		}
	})
}
