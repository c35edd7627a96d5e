package campaign

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// position is the place of an entry in its session. Positions only rise: a missing entry before a
// replicated one is lost. The zero position is unknown.
type position struct{ fence, n int64 }

func (p position) behind(q position) bool {
	return p.fence > q.fence || p.fence == q.fence && p.n > q.n
}

func sessionKeyOf(session string) string { return "session:" + redislock.HashTag(session) + "log" }

// kept asks each replica of a dead master for the last entry of every session, before any replica is
// promoted. The answers of a replica that was asked too late are left out.
func (c *campaign) kept(replicas []*servers.Redis) map[*servers.Redis]map[string]position {
	kept := make(map[*servers.Redis]map[string]position)
	for _, replica := range replicas {
		servers.Within(missed, func() bool { return replica.Info("master_link_status") == "down" })
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
		for n := range talks {
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
func (c *campaign) lastOf(node *servers.Redis, sessions []string) (map[string]position, error) {
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
		case redis.HasErrorPrefix(err, "MOVED"):
			continue
		case err != nil:
			return nil, err
		}
		var at position
		if len(entries) > 0 {
			_, _ = fmt.Sscanf(entries[0].ID, "%d-%d", &at.fence, &at.n)
		}
		last[session] = at
	}
	return last, nil
}

// savedTurn is a turn that was acknowledged: saved under a token, at a time, after a Load 5 before.
func savedTurn(turn int, fence, at int64, seen int) (a *attempt, pair []message) {
	a = &attempt{
		Run: 1, Session: "e0/talk-0", Kind: aTurn, Turn: turn, Fence: fence, Mine: fence, End: saved,
		Begun: at - 10, Asked: at - 5, Loaded: at - 4, Sent: at, Done: at + 1, Ended: at + 10,
	}
	a.Write = a.own()
	question, answer := exchange(turn, a.Write, fence, seen)
	return a, []message{question, answer}
}

// The rules are those of docs/design/campaign.md, Forgotten turns. A lost message that is delivered
// again is stored again, once.
func TestJudge_tellsForgottenFromLost(t *testing.T) {
	type turn struct {
		a    *attempt
		pair []message
	}
	turns := make(map[rune]turn)
	for name, of := range map[rune][4]int{
		'1': {1, 10, 1000, 0}, '2': {2, 20, 2000, 2}, '3': {3, 30, 3000, 2},
		'a': {2, 40, 4000, 4},                        // turn 2 again
		'o': {3, 25, 2500, 4}, 'l': {4, 30, 3000, 6}, // loaded at 2495, and later
		's': {3, 10, 3000, 4}, // under an old token
	} {
		a, pair := savedTurn(of[0], int64(of[1]), int64(of[2]), of[3])
		turns[name] = turn{a, pair}
	}
	kept := func(fence, n int64) map[string]position { return map[string]position{"e0/talk-0": {fence, n}} }
	const none, lost, forgotten = "0, apart 0", "1 (1 lost), apart 0", "0, apart 1 (1 lost)"
	for _, test := range []struct {
		name          string
		after, killed int64
		kept          map[string]position
		saved, stored string
		want          string
	}{
		{"all is there", 0, 0, nil, "12", "12", none},
		{"nothing died", 0, 0, nil, "12", "1", lost},
		{"forgotten by its time", 1500, 2500, nil, "12", "1", forgotten},
		{"answered before the cut", 2500, 3500, nil, "12", "1", lost},
		{"sent after the kill", 500, 1500, nil, "12", "1", lost},
		{"seen by a lost turn", 500, 1500, nil, "12", "2", "1 (1 stale), apart 1 (1 lost)"},
		{"a stale write", 0, 0, nil, "12s", "12s", "2 (2 S2), apart 0"},
		{"behind the replica's end", 2000, 2100, kept(10, 1), "123", "13", forgotten},
		{"behind it, the token was shown", 2000, 2100, kept(20, 0), "123", "13", forgotten},
		{"behind it, long before the master died", 2800, 2900, kept(10, 1), "123", "13", forgotten},
		{"the replica had it", 2000, 2100, kept(20, 1), "123", "13", lost},
		{"the replica had it, just before the master died", 1900, 2001, kept(20, 1), "123", "13", lost},
		{"the replica had a later one", 2000, 2100, kept(25, 0), "123", "13", lost},
		{"the master was dead when it came", 1800, 1900, kept(10, 1), "123", "13", lost},
		{"another session was asked for", 2800, 2900, map[string]position{"e0/talk-1": {}}, "123", "13", lost},
		{"stored again", 2000, 2100, kept(10, 1), "123a", "13a", forgotten},
		{"stored again twice", 2000, 2100, kept(10, 1), "123a", "13aa", "1 (1 doubled), apart 1 (1 lost)"},
		{"outlived the master", 2400, 2498, kept(10, 1), "12o", "1o", "0, apart 2 (1 lost, 1 stale)"},
		{"loaded after that", 2400, 2498, kept(10, 1), "12ol", "1ol", "1 (1 stale), apart 2 (1 lost, 1 stale)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			if test.killed != 0 {
				w := c.windows.open(serverFaults[0], 0, 0)
				c.windows.forget(w, test.after, test.killed)
				c.windows.kept(w, test.kept)
			}
			v := &verdict{c: c, session: "e0/talk-0"}
			for _, name := range test.saved {
				v.attempts = append(v.attempts, turns[name].a)
			}
			for _, name := range test.stored {
				v.stored = append(v.stored, turns[name].pair...)
			}
			v.talk()
			if got := c.judged(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
