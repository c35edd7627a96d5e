package quorum

import (
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

type acquired = answer[Reply]

// The answers of nodes to a proposal of the token 1000. The clocks of the nodes stand at 1000.
var (
	open        = acquired{pending: true}
	silent      = acquired{pending: true, silent: true}
	broken      = acquired{done: true, err: errors.New("x")}
	accepted    = replied(Reply{Outcome: Granted, Last: 1255})
	low         = replied(Reply{Outcome: TooLow, Last: 1000})
	isCancelled = replied(Reply{Outcome: Cancelled, Last: 1000})
	farLow      = replied(Reply{Outcome: TooLow, Last: 1000 + 2*time.Hour.Microseconds()})
	clockLow    = replied(Reply{Outcome: TooLow, Last: 0, Clock: 1000 + 25*time.Hour.Microseconds()})
)

func replied(reply Reply) acquired { return acquired{done: true, reply: reply} }

func young[R any](a answer[R]) answer[R] {
	a.young = true
	return a
}

func heldBy(owner string, age time.Duration) acquired {
	return replied(Reply{Outcome: Busy, Last: 1000,
		State: State{driver.State{Held: true, Age: age, Fence: 745}, owner}})
}

func TestJudge(t *testing.T) {
	a, b := heldBy("a", 0), heldBy("b", 0)
	old := heldBy("dead", time.Second)
	again := a
	again.pending = true
	for name, c := range map[string]struct {
		answers []acquired
		timeUp  bool
		want    decision
	}{
		"a quorum accepts":                          {answers: []acquired{accepted, open, accepted}, want: granted},
		"a quorum of five accepts":                  {answers: []acquired{a, accepted, accepted, b, accepted}, want: granted},
		"a young node does not count":               {answers: []acquired{accepted, young(accepted), open}, want: undecided},
		"two young nodes":                           {answers: []acquired{accepted, young(accepted), young(accepted)}, want: failed},
		"another owner has a quorum":                {answers: []acquired{a, open, a}, want: otherHolds},
		"it has a quorum of five":                   {answers: []acquired{a, b, a, accepted, a}, want: otherHolds},
		"a quorum by a higher token":                {answers: []acquired{accepted, low, open}, want: higher},
		"one low node decides nothing":              {answers: []acquired{low, open, open}, want: undecided},
		"a young low node does not count":           {answers: []acquired{young(low), accepted, a}, want: goOn},
		"a token that is far ahead waits":           {answers: []acquired{farLow, accepted, open}, want: undecided},
		"a clock that is far ahead waits":           {answers: []acquired{clockLow, accepted, open}, want: undecided},
		"a clock that is far ahead never agrees":    {answers: []acquired{clockLow, accepted, broken}, want: failed},
		"without contention each is awaited":        {answers: []acquired{accepted, broken, open}, timeUp: true, want: undecided},
		"a slow node is awaited without contention": {answers: []acquired{accepted, young(accepted), open}, timeUp: true, want: undecided},
		"in contention the slow one is not":         {answers: []acquired{accepted, a, open}, timeUp: true, want: goOn},
		"nor is one that is silent":                 {answers: []acquired{accepted, a, silent}, want: goOn},
		"one answer is no contention":               {answers: []acquired{a, open, silent}, timeUp: true, want: undecided},
		"the lowest node goes on":                   {answers: []acquired{accepted, a, b}, want: goOn},
		"the others yield":                          {answers: []acquired{a, accepted, b}, want: yield},
		"the lowest that answered goes on":          {answers: []acquired{broken, accepted, a}, want: goOn},
		"an orphan is not in the race":              {answers: []acquired{old, accepted, a}, want: goOn},
		"an owner that may have a quorum races":     {answers: []acquired{accepted, a, broken}, want: goOn},
		"a loser is known early":                    {answers: []acquired{a, accepted, open, b, b}, want: yield},
		"not an attempt without a node":             {answers: []acquired{a, b, open, broken, broken}, want: undecided},
		"not while the lowest is open":              {answers: []acquired{open, a, accepted, b, b}, want: undecided},
		"not the lowest itself":                     {answers: []acquired{accepted, a, open, b, b}, want: undecided},
		"a node that is asked again is awaited":     {answers: []acquired{accepted, again, b}, want: undecided},
		"then its last answer counts":               {answers: []acquired{accepted, again, b}, timeUp: true, want: goOn},
		"a cancelled attempt":                       {answers: []acquired{isCancelled, isCancelled, accepted}, want: cancelled},
		"too few nodes":                             {answers: []acquired{a, broken, broken}, want: failed},
		"a busy node and two that fail":             {answers: []acquired{accepted, broken, broken}, want: failed},
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
	last := func(token int64) acquired {
		return replied(Reply{Outcome: TooLow, Last: token})
	}
	for name, c := range map[string]struct {
		answers []acquired
		clock   int64
		want    int64
	}{
		"above all":                            {[]acquired{last(7), last(9), last(8)}, 1, 10},
		"not behind the clock":                 {[]acquired{last(7), last(9), last(8)}, 100, 100},
		"one far ahead does not count":         {[]acquired{last(7), last(9), last(2 * hour)}, 100, 100},
		"while an answer is open, neither":     {[]acquired{last(7), open, last(2 * hour)}, 100, 100},
		"it counts if no quorum is without it": {[]acquired{last(7), broken, last(2 * hour)}, 100, 2*hour + 1},
		"all far ahead":                        {[]acquired{last(2 * hour), last(2*hour + 5), open}, 100, 2*hour + 6},
	} {
		if got := nextToken(c.answers, 2, c.clock); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestBusy_state(t *testing.T) {
	at := func(owner string, fence int64, ttl time.Duration) acquired {
		return replied(Reply{Outcome: Busy,
			State: State{driver.State{Held: true, Fence: fence, TTL: ttl}, owner}})
	}
	for name, c := range map[string]struct {
		answers []acquired
		fence   int64
		ttl     time.Duration
		ok      bool
	}{
		"the highest token of the holder":  {[]acquired{at("a", 5, 9), at("a", 7, 9), at("b", 9, 9)}, 7, 9, true},
		"not that of a young node":         {[]acquired{at("a", 5, 9), young(at("a", 7, 9)), broken}, 5, 9, true},
		"the time for which a quorum does": {[]acquired{at("a", 5, 1), at("a", 5, 3), at("a", 5, 2)}, 5, 2, true},
		"no holder":                        {[]acquired{at("a", 5, 9), at("b", 7, 9), broken}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			state, ok := busy(c.answers, 2)
			if state.Fence != c.fence || state.TTL != c.ttl || ok != c.ok {
				t.Errorf("%+v, %t", state, ok)
			}
		})
	}
}

func TestInspect_decision(t *testing.T) {
	type seen = answer[State]
	free := seen{done: true}
	mine := seen{done: true, reply: State{driver.State{Held: true, Fence: 5}, "a"}}
	fails, open := seen{done: true, err: errors.New("x")}, seen{pending: true}
	for name, c := range map[string]struct {
		answers []seen
		fence   int64
		want    bool
	}{
		"held":                          {[]seen{mine, free, mine}, 5, true},
		"free":                          {[]seen{free, mine, free}, 0, true},
		"free by two":                   {[]seen{free, free, open}, 0, true},
		"held by a quorum or by one":    {[]seen{mine, free, open}, 5, false},
		"an owner may have a quorum":    {[]seen{mine, free, fails}, 5, true},
		"two of three answers of five":  {[]seen{mine, mine, free, fails, fails}, 5, true},
		"none of three answers of five": {[]seen{free, free, free, fails, fails}, 0, true},
		"two answers of five":           {[]seen{free, free, open, open, open}, 0, false},
		"too few answers":               {[]seen{mine, fails, fails}, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			state, got := inspect(c.answers, len(c.answers)/2+1)
			if got != c.want || state.Fence != c.fence || state.Held != (c.fence > 0) {
				t.Errorf("%+v, %t", state, got)
			}
		})
	}
}

func TestJudgeExtend(t *testing.T) {
	type extended = answer[[]driver.ExtendReply]
	is := func(reply driver.ExtendReply) extended {
		return extended{done: true, reply: []driver.ExtendReply{reply}}
	}
	mine, not := is(driver.ExtendReply{Held: true}), is(driver.ExtendReply{})
	temporary := extended{done: true, err: driver.ErrTemporary}
	unsent := extended{done: true, err: driver.ErrNotDone}
	fresh, open := mine, extended{pending: true}
	fresh.young = true
	freshNot := not
	freshNot.young = true
	for name, c := range map[string]struct {
		answers []extended
		exact   bool
		want    agreement
		effect  bool
	}{
		"held":                            {[]extended{mine, mine, open}, false, yes, true},
		"a young node does not count":     {[]extended{mine, fresh, open}, false, awaiting, true},
		"nor do two":                      {[]extended{mine, fresh, fresh}, false, unknown, true},
		"lost":                            {[]extended{not, open, not}, false, no, false},
		"a young node has lost it":        {[]extended{freshNot, mine, not}, false, no, false},
		"not lost by one":                 {[]extended{not, mine, open}, false, awaiting, true},
		"failed":                          {[]extended{mine, temporary, temporary}, false, unknown, false},
		"an exact one on one node":        {[]extended{mine, unsent, unsent}, true, unknown, true},
		"an exact one that one refused":   {[]extended{temporary, unsent, unsent}, true, unknown, true},
		"an exact one that was not sent":  {[]extended{unsent, unsent, unsent}, true, unknown, false},
		"no further answer can decide it": {[]extended{temporary, temporary, open}, false, unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, effect := judgeExtend(c.answers, 0, 2, c.exact)
			if got != c.want || effect != c.effect {
				t.Errorf("%d, %t; want %d, %t", got, effect, c.want, c.effect)
			}
		})
	}
}

func TestJudgeRelease(t *testing.T) {
	type ended = answer[bool]
	released, not := ended{done: true, reply: true}, ended{done: true}
	refused, lost, open := ended{done: true, err: driver.ErrRights}, ended{done: true, err: errors.New("x")}, ended{pending: true}
	for name, c := range map[string]struct {
		answers []ended
		want    agreement
		effect  bool
	}{
		"released":                      {[]ended{released, open, released}, yes, true},
		"not held":                      {[]ended{not, not, open}, no, true},
		"two of each":                   {[]ended{released, released, not, not, lost}, unknown, true},
		"all have refused":              {[]ended{refused, refused, refused}, unknown, false},
		"one has released":              {[]ended{refused, refused, released}, unknown, true},
		"one may have released":         {[]ended{refused, refused, lost}, unknown, true},
		"the last answer is waited for": {[]ended{refused, refused, open}, awaiting, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, effect := judgeRelease(c.answers, len(c.answers)/2+1)
			if got != c.want || effect != c.effect {
				t.Errorf("%d, %t; want %d, %t", got, effect, c.want, c.effect)
			}
		})
	}
}

func TestJudgeRaise(t *testing.T) {
	type rose = answer[driver.RaiseReply]
	to := func(token int64) rose {
		return rose{done: true, reply: driver.RaiseReply{Held: true, Fence: token}}
	}
	not, fails, open := rose{done: true}, rose{done: true, err: driver.ErrFloor}, rose{pending: true}
	for name, c := range map[string]struct {
		answers []rose
		keeps   bool
		want    agreement
	}{
		"raised":                          {answers: []rose{to(9), open, to(9)}, want: yes},
		"another token is not the same":   {answers: []rose{to(9), to(99), fails}, want: unknown},
		"a quorum may yet agree":          {answers: []rose{to(9), to(99), open}, want: awaiting},
		"not held":                        {answers: []rose{to(9), not, not}, want: no},
		"failed":                          {answers: []rose{to(9), fails, fails}, want: unknown},
		"keeping asks for the owner only": {answers: []rose{to(7), to(99), fails}, keeps: true, want: yes},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := judgeRaise(c.answers, 9, c.keeps, 2); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
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
		"more than a minority":     {[]error{rights, rights}, 1, []error{rights, driver.ErrRefused}, []error{driver.ErrNotDone}},
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
