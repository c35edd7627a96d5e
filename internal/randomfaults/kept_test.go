package randomfaults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/testservers"
)

// position is that of an entry of a session. Positions only rise: an entry that is missing before one that was
// replicated is lost, not forgotten. The zero position is an unknown one.
type position struct{ fence, n int64 }

func (p position) behind(q position) bool {
	return p.fence > q.fence || p.fence == q.fence && p.n > q.n
}

// positionOf is the position that a stream's ID names.
func positionOf(id string) (p position) {
	_, _ = fmt.Sscanf(id, "%d-%d", &p.fence, &p.n)
	return p
}

// kept asks each replica of a dead master for the last entry of every session, before any replica is
// promoted. The answers of a replica that was asked too late are left out.
func (c *campaign) kept(replicas []*testservers.Redis) map[*testservers.Redis]map[string]position {
	kept := make(map[*testservers.Redis]map[string]position)
	for _, replica := range replicas {
		testservers.Within(missed, func() bool { return replica.Info("master_link_status") == "down" })
		last, err := c.lastOf(replica, c.ledger.inUse())
		if role := replica.Info("role"); err != nil || role != "slave" {
			c.say("%s does not tell what it has kept: role %s, %v", replica.Addr(), role, err)
			continue
		}
		kept[replica] = last
	}
	return kept
}

// inUse are the sessions that have entries which are not judged yet, or will soon have.
func (l *ledger) inUse() (sessions []string) {
	this := epoch(now(), l.c.start, l.c.plan.rotate)
	for _, e := range []int{this, this + 1} {
		for n := range talks + 1 {
			sessions = append(sessions, talkOf(e, n), noteOf(e, n))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for session := range l.sessions {
		sessions = append(sessions, session)
	}
	return sessions
}

// lastOf asks one node for the last entries of sessions. Those of other masters are left out.
func (c *campaign) lastOf(node *testservers.Redis, sessions []string) (map[string]position, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	if c.service.Cluster != nil {
		if err := conn.ReadOnly(ctx).Err(); err != nil {
			return nil, err
		}
	}
	cmds := make(map[string]*redis.XMessageSliceCmd)
	_, _ = conn.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		for _, session := range sessions {
			cmds[session] = pipe.XRevRangeN(ctx, sessionKeyOf(session), "+", "-", 1)
		}
		return nil
	})
	last := make(map[string]position)
	for session, cmd := range cmds {
		entries, err := cmd.Result()
		switch {
		case redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "WRONGTYPE"): // another program's data
			continue
		case err != nil:
			return nil, err
		}
		last[session] = position{}
		if len(entries) > 0 {
			last[session] = positionOf(entries[0].ID)
		}
	}
	return last, nil
}

// saved is a turn that was acknowledged: saved under a token, at a time, after a Load 5 before.
func savedTurn(turn int, fence, at int64, seen int) (a *attempt, pair []message) {
	a = &attempt{
		Run: 1, Session: "e0/talk-0", Kind: aTurn, Turn: turn, Fence: fence, Mine: fence, End: saved,
		Begun: at - 10, Asked: at - 5, Loaded: at - 4, Sent: at, Done: at + 1, Ended: at + 10,
	}
	a.Write = a.own()
	question, answer := exchange(turn, a.Write, fence, seen)
	return a, []message{question, answer}
}

// died is a fail-over: the replica that was promoted has kept nothing of a session behind its last entry.
func (c *campaign) died(killed int64, session string, last position) {
	w := c.windows.open(failoverFaults[0], 0, 0)
	c.windows.forget(w, killed-100, killed)
	c.windows.kept(w, map[string]position{session: last})
}

// judge1 judges one session with turns.
func (c *campaign) judge1(attempts []*attempt, pairs ...[]message) string {
	v := &verdict{c: c, session: "e0/talk-0", attempts: attempts}
	for _, pair := range pairs {
		v.stored = append(v.stored, pair...)
	}
	v.talk()
	return fmt.Sprintf("%s, %d forgotten, %d outlived", c.judged(), v.forgotten, v.outlived)
}

// What was acknowledged and is missing is lost, whatever died, unless the master died after it was sent,
// and its position is behind what the replica had.
func TestJudge_tellsForgottenFromLost(t *testing.T) {
	const forgotten, lost = "0, apart 1 (1 lost), 1 forgotten, 0 outlived", "1 (1 lost), apart 0, 0 forgotten, 0 outlived"
	for _, test := range []struct {
		name    string
		killed  int64 // 0: nothing died
		session string
		last    position
		want    string
	}{
		{"behind the replica's end", 2100, "e0/talk-0", position{10, 1}, forgotten},
		{"behind it, the token was shown", 2100, "e0/talk-0", position{20, 0}, forgotten},
		{"behind it, long before the master died", 2900, "e0/talk-0", position{10, 1}, forgotten},
		{"the replica had it", 2100, "e0/talk-0", position{20, 1}, lost},
		{"the replica had it, just before the master died", 2001, "e0/talk-0", position{20, 1}, lost},
		{"the replica had a later one", 2100, "e0/talk-0", position{25, 0}, lost},
		{"the master was dead when it came", 1900, "e0/talk-0", position{10, 1}, lost},
		{"nothing died", 0, "", position{}, lost},
		{"another session was asked for, long before the master died", 2900, "e0/talk-1", position{}, lost},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			a, first := savedTurn(1, 10, 1000, 0)
			b, _ := savedTurn(2, 20, 2000, 2)
			d, third := savedTurn(3, 30, 3000, 2)
			if test.killed != 0 {
				c.died(test.killed, test.session, test.last)
			}
			if got := c.judge1([]*attempt{a, b, d}, first, third); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// A message that is handed out again, and whose turn the server forgot, is stored again, once, behind what
// was answered since.
func TestJudge_letsForgottenTurnsBeStoredAgain(t *testing.T) {
	for _, test := range []struct {
		times int
		want  string
	}{
		{1, "0, apart 1 (1 lost), 1 forgotten, 0 outlived"},
		{2, "1 (1 doubled), apart 1 (1 lost), 1 forgotten, 0 outlived"},
	} {
		c := book(t)
		a, first := savedTurn(1, 10, 1000, 0)
		b, _ := savedTurn(2, 20, 2000, 2)
		d, third := savedTurn(3, 30, 3000, 2)
		e, again := savedTurn(2, 40, 4000, 4)
		c.died(2100, "e0/talk-0", position{10, 1})
		pairs := [][]message{first, third, again, again}[:2+test.times]
		if got := c.judge1([]*attempt{a, b, d, e}, pairs...); got != test.want {
			t.Errorf("stored %d times: %s, want %s", test.times, got, test.want)
		}
	}
}

// A worker that has loaded from the dead master, and saves to the next one, has seen what is gone. A worker
// that loads later has not.
func TestJudge_knowsWhoHasOutlivedTheMaster(t *testing.T) {
	c := book(t)
	a, first := savedTurn(1, 10, 1000, 0)
	b, _ := savedTurn(2, 20, 2000, 2)
	d, outlived := savedTurn(3, 25, 2500, 4) // loaded at 2495
	e, after := savedTurn(4, 30, 3000, 6)
	c.died(2498, "e0/talk-0", position{10, 1})
	if got, want := c.judge1([]*attempt{a, b, d}, first, outlived), "0, apart 2 (1 lost, 1 stale), 1 forgotten, 1 outlived"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c = book(t)
	c.died(2498, "e0/talk-0", position{10, 1})
	want := "1 (1 stale), apart 2 (1 lost, 1 stale), 1 forgotten, 1 outlived"
	if got := c.judge1([]*attempt{a, b, d, e}, first, outlived, after); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
