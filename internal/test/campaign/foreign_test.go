package campaign

import "testing"

// A change of another program's data is a violation, and so is a grant of a lock at its key. A
// later grant is allowed.
func TestForeign_dataIsLeftAsItIs(t *testing.T) {
	for _, test := range []struct {
		name string
		does func(*campaign)
		want string
	}{
		{"it is as it was", func(c *campaign) { c.compare("key", "x", "x", span{100, 300}) }, "0, apart 0"},
		{"it has changed", func(c *campaign) { c.compare("key", "x", "y", span{100, 300}) }, "1 (1 foreign), apart 0"},
		{"it is gone", func(c *campaign) { c.compare("key", "x", "", span{100, 300}) }, "1 (1 foreign), apart 0"},
		{"it is gone with its server", func(c *campaign) {
			c.windows.forget(c.windows.open(replaced, 0, 50), 50, 200)
			c.compare("key", "x", "", span{100, 300})
		}, "0, apart 1 (1 foreign)"},
		{"it is gone after its server was", func(c *campaign) {
			c.windows.forget(c.windows.open(replaced, 0, 50), 50, 200)
			c.compare("key", "x", "", span{250, 300})
		}, "1 (1 foreign), apart 0"},
		{"granted meanwhile", func(c *campaign) {
			c.register.enter(&said{Run: 1, Lease: 1, Key: "key", Fence: 10, Began: 100, Got: 200})
			c.register.untouched("key", span{100, 300})
		}, "1 (1 foreign), apart 0"},
		{"granted later", func(c *campaign) {
			c.register.enter(&said{Run: 1, Lease: 1, Key: "key", Fence: 10, Began: 100, Got: 400})
			c.register.untouched("key", span{100, 300})
		}, "0, apart 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			test.does(c)
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// A Load names all entries of other programs that the servers have kept, and nothing else. Where
// other data stands, nothing is stored.
func TestForeign_entriesAreNamed(t *testing.T) {
	put := foreign{entries: []entry{{"10-1", 1000, 1001}, {"20-2", 2000, 2001}}}
	turn, pair := savedTurn(3, 10, 103, 0)
	during := foreign{occupied: &span{50, 200}}
	for _, test := range []struct {
		name          string
		foreign       foreign
		named         []string
		attempts      []*attempt
		after, killed int64 // what the servers forget
		want          string
	}{
		{"none", foreign{}, nil, nil, 0, 0, "0, apart 0"},
		{"both", put, []string{"10-1", "20-2"}, nil, 0, 0, "0, apart 0"},
		{"one is not named", put, []string{"10-1"}, nil, 0, 0, "1 (1 foreign), apart 0"},
		{"one is forgotten", put, []string{"10-1"}, nil, 1500, 2500, "0, apart 1 (1 foreign)"},
		{"another one is", put, []string{"10-1"}, nil, 500, 1500, "1 (1 foreign), apart 0"},
		{"an entry of our own", put, []string{"10-1", "15-1", "20-2"}, nil, 0, 0, "1 (1 foreign), apart 0"},
		{"named twice", put, []string{"10-1", "20-2", "20-2"}, nil, 0, 0, "1 (1 foreign), apart 0"},
		{"not known", foreign{unsure: true}, []string{"10-1"}, nil, 0, 0, "0, apart 0"},
		{"saved where there is something else", during, nil, []*attempt{turn}, 0, 0, "1 (1 foreign), apart 0"},
		{"saved after that", foreign{occupied: &span{50, 103}}, nil, []*attempt{turn}, 0, 0, "0, apart 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			if test.killed != 0 {
				c.windows.forget(c.windows.open(serverFaults[0], 0, 0), test.after, test.killed)
			}
			v := &verdict{c: c, session: "e0/talk-0", named: test.named, foreign: test.foreign, attempts: test.attempts}
			if test.attempts != nil {
				v.stored = pair
			}
			v.talk()
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
