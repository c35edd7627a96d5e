package quorum

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The answers of nodes to a proposal of the token 1000. The clocks of the nodes stand at 1000.
var (
	open        = answer{pending: true}
	silent      = answer{pending: true, silent: true}
	broken      = answer{done: true, err: errors.New("x")}
	accepted    = replied(Reply{Outcome: Granted, Last: 1255})
	low         = replied(Reply{Outcome: TooLow, Last: 1000})
	isCancelled = replied(Reply{Outcome: Cancelled, Last: 1000})
	farLow      = replied(Reply{Outcome: TooLow, Last: 1000 + 2*time.Hour.Microseconds()})
	clockLow    = replied(Reply{Outcome: TooLow, Last: 0, Clock: 1000 + 25*time.Hour.Microseconds()})
)

func replied(reply Reply) answer { return answer{done: true, reply: reply} }

func young(a answer) answer {
	a.young = true
	return a
}

func heldBy(owner string, age time.Duration) answer {
	return replied(Reply{Outcome: Busy, Last: 1000,
		State: State{driver.State{Held: true, Age: age, Fence: 745}, owner}})
}

func TestJudge(t *testing.T) {
	a, b := heldBy("a", 0), heldBy("b", 0)
	old := heldBy("dead", time.Second)
	again := a
	again.pending = true
	for name, c := range map[string]struct {
		answers []answer
		timeUp  bool
		want    decision
	}{
		"a quorum accepts":                          {answers: []answer{accepted, open, accepted}, want: granted},
		"a quorum of five accepts":                  {answers: []answer{a, accepted, accepted, b, accepted}, want: granted},
		"a young node does not count":               {answers: []answer{accepted, young(accepted), open}, want: undecided},
		"two young nodes":                           {answers: []answer{accepted, young(accepted), young(accepted)}, want: failed},
		"another owner has a quorum":                {answers: []answer{a, open, a}, want: otherHolds},
		"it has a quorum of five":                   {answers: []answer{a, b, a, accepted, a}, want: otherHolds},
		"a quorum by a higher token":                {answers: []answer{accepted, low, open}, want: higher},
		"one low node decides nothing":              {answers: []answer{low, open, open}, want: undecided},
		"a young low node does not count":           {answers: []answer{young(low), accepted, a}, want: goOn},
		"a token that is far ahead waits":           {answers: []answer{farLow, accepted, open}, want: undecided},
		"a clock that is far ahead waits":           {answers: []answer{clockLow, accepted, open}, want: undecided},
		"a clock that is far ahead never agrees":    {answers: []answer{clockLow, accepted, broken}, want: failed},
		"without contention each is awaited":        {answers: []answer{accepted, broken, open}, timeUp: true, want: undecided},
		"a slow node is awaited without contention": {answers: []answer{accepted, young(accepted), open}, timeUp: true, want: undecided},
		"in contention the slow one is not":         {answers: []answer{accepted, a, open}, timeUp: true, want: goOn},
		"nor is one that is silent":                 {answers: []answer{accepted, a, silent}, want: goOn},
		"one answer is no contention":               {answers: []answer{a, open, silent}, timeUp: true, want: undecided},
		"the lowest node goes on":                   {answers: []answer{accepted, a, b}, want: goOn},
		"the others yield":                          {answers: []answer{a, accepted, b}, want: yield},
		"the lowest that answered goes on":          {answers: []answer{broken, accepted, a}, want: goOn},
		"an orphan is not in the race":              {answers: []answer{old, accepted, a}, want: goOn},
		"an owner that may have a quorum races":     {answers: []answer{accepted, a, broken}, want: goOn},
		"a loser is known early":                    {answers: []answer{a, accepted, open, b, b}, want: yield},
		"not an attempt without a node":             {answers: []answer{a, b, open, broken, broken}, want: undecided},
		"not while the lowest is open":              {answers: []answer{open, a, accepted, b, b}, want: undecided},
		"not the lowest itself":                     {answers: []answer{accepted, a, open, b, b}, want: undecided},
		"a node that is asked again is awaited":     {answers: []answer{accepted, again, b}, want: undecided},
		"then its last answer counts":               {answers: []answer{accepted, again, b}, timeUp: true, want: goOn},
		"a cancelled attempt":                       {answers: []answer{isCancelled, isCancelled, accepted}, want: cancelled},
		"too few nodes":                             {answers: []answer{a, broken, broken}, want: failed},
		"a busy node and two that fail":             {answers: []answer{accepted, broken, broken}, want: failed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judge(c.answers, len(c.answers)/2+1, 1000, 1000, c.timeUp); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestNext_token(t *testing.T) {
	hour := time.Hour.Microseconds()
	last := func(token int64) answer {
		return replied(Reply{Outcome: TooLow, Last: token})
	}
	for name, c := range map[string]struct {
		answers []answer
		clock   int64
		want    int64
	}{
		"above all":                            {[]answer{last(7), last(9), last(8)}, 1, 10},
		"not behind the clock":                 {[]answer{last(7), last(9), last(8)}, 100, 100},
		"one far ahead does not count":         {[]answer{last(7), last(9), last(2 * hour)}, 100, 100},
		"while an answer is open, neither":     {[]answer{last(7), open, last(2 * hour)}, 100, 100},
		"it counts if no quorum is without it": {[]answer{last(7), broken, last(2 * hour)}, 100, 2*hour + 1},
		"all far ahead":                        {[]answer{last(2 * hour), last(2*hour + 5), open}, 100, 2*hour + 6},
	} {
		if got := nextToken(c.answers, 2, c.clock); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestBusy_state(t *testing.T) {
	at := func(owner string, fence int64, ttl time.Duration) answer {
		return replied(Reply{Outcome: Busy,
			State: State{driver.State{Held: true, Fence: fence, TTL: ttl}, owner}})
	}
	for name, c := range map[string]struct {
		answers []answer
		fence   int64
		ttl     time.Duration
		ok      bool
	}{
		"the highest token of the holder":  {[]answer{at("a", 5, 9), at("a", 7, 9), at("b", 9, 9)}, 7, 9, true},
		"not that of a young node":         {[]answer{at("a", 5, 9), young(at("a", 7, 9)), broken}, 5, 9, true},
		"the time for which a quorum does": {[]answer{at("a", 5, 1), at("a", 5, 3), at("a", 5, 2)}, 5, 2, true},
		"no holder":                        {[]answer{at("a", 5, 9), at("b", 7, 9), broken}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			state, ok := holder(c.answers, 2, 2)
			if state.Fence != c.fence || state.TTL != c.ttl || ok != c.ok {
				t.Errorf("%+v, %t", state, ok)
			}
		})
	}
}

func TestInspect_decision(t *testing.T) {
	free := answer{done: true, reply: Reply{Outcome: Free}}
	mine := answer{done: true, reply: Reply{Outcome: Busy, State: State{driver.State{Held: true, Fence: 5}, "a"}}}
	fails := answer{done: true, err: errors.New("x")}
	for name, c := range map[string]struct {
		answers []answer
		fence   int64
		want    bool
	}{
		"held":                          {[]answer{mine, free, mine}, 5, true},
		"free":                          {[]answer{free, mine, free}, 0, true},
		"free by two":                   {[]answer{free, free, open}, 0, true},
		"held by a quorum or by one":    {[]answer{mine, free, open}, 5, false},
		"an owner may have a quorum":    {[]answer{mine, free, fails}, 5, true},
		"two of three answers of five":  {[]answer{mine, mine, free, fails, fails}, 5, true},
		"none of three answers of five": {[]answer{free, free, free, fails, fails}, 0, true},
		"two answers of five":           {[]answer{free, free, open, open, open}, 0, false},
		"too few answers":               {[]answer{mine, fails, fails}, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			state, got := inspect(c.answers, len(c.answers)/2+1)
			if got != c.want || state.Fence != c.fence || state.Held != (c.fence > 0) {
				t.Errorf("%+v, %t", state, got)
			}
		})
	}
}

func TestAgree(t *testing.T) {
	held, not := replied(Reply{Outcome: Held}), replied(Reply{Outcome: NotHeld})
	temporary, lost := answer{done: true, err: driver.ErrTemporary}, answer{done: true, err: errors.New("x")}
	for name, c := range map[string]struct {
		answers []answer
		want    agreement
		effects int
	}{
		"held":                            {[]answer{held, held, open}, yes, 3},
		"a young node does not count":     {[]answer{held, young(held), open}, awaiting, 3},
		"nor do two":                      {[]answer{held, young(held), young(held)}, unknown, 3},
		"lost":                            {[]answer{not, open, not}, no, 1},
		"a young node has lost it":        {[]answer{young(not), held, not}, no, 1},
		"not lost by one":                 {[]answer{not, held, open}, awaiting, 2},
		"two of each":                     {[]answer{held, held, not, not, lost}, unknown, 3},
		"failed":                          {[]answer{held, temporary, temporary}, unknown, 1},
		"one may have had an effect":      {[]answer{temporary, temporary, lost}, unknown, 1},
		"none has had an effect":          {[]answer{temporary, temporary, temporary}, unknown, 0},
		"no further answer can decide it": {[]answer{temporary, temporary, open}, unknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, effects, _ := agree(c.answers, len(c.answers)/2+1, func(a *answer) bool { return !a.young })
			if got != c.want || effects != c.effects {
				t.Errorf("%d, %d effects; want %d, %d", got, effects, c.want, c.effects)
			}
		})
	}
}

func TestKinds_ofTheQuorum(t *testing.T) {
	temporary, rights := driver.ErrTemporary, driver.ErrRights
	for name, c := range map[string]struct {
		causes []error
		agreed int
		want   []error
		not    []error
	}{
		"more than a minority":     {[]error{rights, rights}, 1, []error{rights, driver.ErrRefused, driver.ErrNotDone}, nil},
		"a minority":               {[]error{rights}, 1, nil, []error{rights}},
		"temporary with an answer": {[]error{temporary, driver.ErrNotDone}, 1, []error{temporary, driver.ErrNotDone}, nil},
		"temporary alone":          {[]error{temporary, driver.ErrNotDone, driver.ErrNotDone}, 0, nil, []error{temporary}},
		"unsent":                   {[]error{driver.ErrNotDone, driver.ErrNotDone}, 0, []error{driver.ErrNotDone}, []error{temporary}},
	} {
		err := &nodesError{kinds: kinds(c.causes, c.agreed, 3, 2)}
		for _, kind := range c.want {
			if !errors.Is(err, kind) {
				t.Errorf("%s: not %v", name, kind)
			}
		}
		for _, kind := range c.not {
			if errors.Is(err, kind) {
				t.Errorf("%s: %v", name, kind)
			}
		}
	}
}

func TestClock_aMinorityDecidesNothing(t *testing.T) {
	year := (365 * 24 * time.Hour).Microseconds()
	for name, c := range map[string]struct {
		clocks []int64
		want   int64
	}{
		"the second of three":          {[]int64{1000, 2000, 3000}, 2000},
		"one years ahead":              {[]int64{1000, 2 * year, 1001}, 1001},
		"one years behind":             {[]int64{2 * year, 1, 2*year + 1}, 2 * year},
		"the lower one of two":         {[]int64{0, 5000, 4000}, 4000},
		"one of three shows no clock":  {[]int64{0, 5000, 0}, 0},
		"two of five may be far ahead": {[]int64{year, year, 7, 8, 9}, 9},
	} {
		q := &quorum{size: len(c.clocks)/2 + 1, began: time.Now()}
		for _, clock := range c.clocks {
			n := &node{q: q}
			n.clock.Store(clock)
			q.nodes = append(q.nodes, n)
		}
		if got := q.clock(); got < c.want || got > c.want+time.Minute.Microseconds() {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestNodeOwner_isNeverRepeated(t *testing.T) {
	seen := make(map[string]bool)
	for _, owner := range []string{"a", "b"} {
		for number := range 3 {
			hash := nodeOwner(owner, number)
			if len(hash) != 32 || seen[hash] {
				t.Errorf("%q", hash)
			}
			seen[hash] = true
		}
	}
}

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
