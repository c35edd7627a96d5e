package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

const index = "session:inboxes"

// asker is a session, and a driver for its inbox.
type asker struct {
	*testing.T
	*rig
	storedriver.Driver
	access storedriver.Access // the first of a lease
}

// newAsker takes the options of newRig.
func newAsker(t *testing.T, options ...any) *asker {
	t.Helper()
	a := &asker{T: t, rig: newRig(t, options...)}
	a.Driver, a.access = driverOf(t, a.client, storedriver.Retention{})
	return a
}

// put makes a Put of the question "of <ID>", and checks its outcome.
func (a *asker) put(id string, want storedriver.Outcome) {
	a.Helper()
	v, err := a.Driver.Put(a.Context(), storedriver.Put{Session: a.key, ID: id, Question: []byte("of " + id)})
	if err != nil || v.Outcome != want {
		a.Errorf("Put of %.20s: %+v, %v; want %d", id, v, err, want)
	}
}

// pends checks which IDs are pending, by arrival.
func (a *asker) pends(want ...string) (items []storedriver.Item) {
	a.Helper()
	v, items, err := a.Driver.Pending(a.Context(), storedriver.Access{Session: a.key})
	var ids []string
	for i, item := range items {
		if ids = append(ids, item.ID); item.Age < 0 || i > 0 && item.Age > items[i-1].Age {
			a.Errorf("the ages of %+v", items)
		}
	}
	if err != nil || v.Outcome != storedriver.Done || !slices.Equal(ids, want) {
		a.Errorf("pending: %q, %+v, %v; want %q", ids, v, err, want)
	}
	return items
}

// answers makes an Append of several IDs with the token of a number.
func (a *asker) answers(n int64, superseded []string, ids ...string) {
	a.Helper()
	w := storedriver.Write{Access: a.access, N: n, Op: fmt.Sprintf("%032x", n)}
	w.Session = a.key
	v, err := a.Append(a.Context(), storedriver.Append{Write: w, Superseded: superseded,
		Content: storedriver.Content{IDs: ids, Messages: [][]byte{[]byte("q"), []byte("a")}}})
	if err != nil || v.Outcome != storedriver.Done {
		a.Fatalf("Append of %q: %+v, %v", ids, v, err)
	}
}

// listed returns the names of all pages of the index, which may come twice.
func (a *asker) listed() map[string]int {
	a.Helper()
	names := map[string]int{}
	for page, next, err := []string(nil), "", error(nil); ; {
		page, next, err = a.Inboxes(a.Context(), next)
		must(a, err)
		for _, name := range page {
			names[name]++
		}
		if next == "" {
			return names
		}
	}
}

// back moves an arrival back in time.
func (a *asker) back(id string, by time.Duration) {
	a.Helper()
	item := a.client.HGet(a.Context(), a.inbox(), fieldOf(id)).Val()
	var arrival int64
	if _, err := fmt.Sscanf(item[:16], "%d", &arrival); err != nil {
		a.Fatalf("the item %q: %v", item, err)
	}
	must(a, a.client.HSet(a.Context(), a.inbox(), fieldOf(id), fmt.Sprintf("%016d%s", arrival-by.Microseconds(), item[16:])).Err())
}

// An item and an exchange have the form that docs/design/sessions.md states. An answered item that stays is not pending.
func TestInbox_storedForm(t *testing.T) {
	t.Parallel()
	a := newAsker(t, servers.StartRedis(t))
	a.put("q1", storedriver.Done)
	item := a.client.HGet(t.Context(), a.inbox(), fieldOf("q1")).Val()
	if at, rest := item[:16], item[16:]; at[0] != '1' || rest != "002q1of q1" {
		t.Errorf("the item is %q", item)
	}
	score := a.client.ZScore(t.Context(), index, a.key).Val()
	if at := fmt.Sprintf("%.0f", score); len(at) != 16 || time.Since(time.UnixMicro(int64(score))) > time.Minute {
		t.Errorf("the score is %s, and the arrival %s", at, item[:16])
	}
	a.answers(1, nil, "q1", "q2")
	entries := a.client.XRange(t.Context(), a.log(), "-", "+").Val()
	fields, err := a.client.Do(t.Context(), "xrange", a.log(), "-", "+").Slice()
	must(t, err)
	if text := fmt.Sprint(fields[len(entries)-1]); !strings.HasSuffix(text, " m q m a id q1 id q2]]") {
		t.Errorf("the entry is %s", text)
	}
	must(t, a.client.HSet(t.Context(), a.inbox(), fieldOf("q1"), item).Err()) // as if its removal had failed
	a.pends()
}

// An inbox without an item has no key. The inbox lives for 24 hours from its last Put, and the index for 25
// hours. A Put that changes nothing does not prolong the inbox.
func TestInbox_keysLeft(t *testing.T) {
	t.Parallel()
	a := newAsker(t, servers.StartRedis(t))
	lives := func(key string, want time.Duration) {
		t.Helper()
		if life := a.client.PTTL(t.Context(), key).Val(); life > want || life < want-time.Minute {
			t.Errorf("%s lives for %s, want %s", key, life, want)
		}
	}
	for what, decide := range map[string]func(id string){
		"an answer": func(id string) {
			must(t, a.memory.SaveOnce(t.Context(), id, "q", "a"))
			a.pends()
		},
		"an answer to several": func(id string) { a.access.Fence++; a.answers(1, []string{"late"}, id, "other") },
		"superseded":           func(id string) { a.access.Fence++; a.answers(1, []string{id}, "newer") },
		"a stop": func(id string) {
			_, err := a.Close(t.Context(), storedriver.CloseRequest{Session: a.key, ID: storedriver.HashID(id)})
			must(t, err)
		},
		"a Delete": func(string) { must(t, a.memory.Delete(t.Context())) },
		"its life": func(id string) { a.back(id, storedriver.InboxLife); a.pends() },
	} {
		a.key, a.access.Fence = what, time.Now().UnixMicro()
		a.rig = a.named(t, what)
		a.put(what, storedriver.Done)
		for key, life := range map[string]time.Duration{a.inbox(): 24 * time.Hour, index: 25 * time.Hour} {
			lives(key, life)
			must(t, a.client.PExpire(t.Context(), key, time.Hour).Err())
		}
		a.put(what, storedriver.Done)
		lives(a.inbox(), time.Hour)
		lives(index, 25*time.Hour)
		a.put("another", storedriver.Done)
		lives(a.inbox(), 24*time.Hour)
		must(t, a.client.HDel(t.Context(), a.inbox(), fieldOf("another")).Err())
		decide(what)
		if n := a.client.Exists(t.Context(), a.inbox()).Val(); n > 0 {
			t.Errorf("%s: the inbox is left", what)
		}
		if n := a.client.ZScore(t.Context(), index, what).Val(); n == 0 {
			t.Errorf("%s has removed the session from the index", what)
		}
	}
	if names := a.listed(); len(names) > 0 || a.client.Exists(t.Context(), index).Val() > 0 {
		t.Errorf("listed: %v; the index is left", names)
	}
}

// A question is pending for 24 hours. After that, it counts for nothing, and may be put again.
func TestInbox_life_24Hours(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	var all []string
	for n := range storedriver.InboxMax {
		all = append(all, fmt.Sprint("q", n))
		a.put(all[n], storedriver.Done)
	}
	a.back("q0", storedriver.InboxLife-time.Minute)
	a.put("more", storedriver.Full)
	if items := a.pends(all...); items[0].Age < storedriver.InboxLife-time.Minute {
		t.Errorf("the age of the first is %s", items[0].Age)
	}
	a.back("q0", time.Minute)
	a.back("q1", storedriver.InboxLife)
	a.put("q1", storedriver.Done)
	a.put("more", storedriver.Done)
	a.pends(append(all[2:], "q1", "more")...)
	a.put("q0", storedriver.Full)
	a.back("q2", storedriver.InboxLife)
	large := strings.Repeat("x", storedriver.InboxBytes)
	for _, id := range all[3:] {
		a.back(id, storedriver.InboxLife)
	}
	a.back("q1", storedriver.InboxLife)
	a.back("more", storedriver.InboxLife)
	a.put(large[:512], storedriver.Done) // the others are no bytes, either
	if n := a.client.HLen(t.Context(), a.inbox()).Val(); n != 1 {
		t.Errorf("%d items are left", n)
	}
}

// A question arrives after the others, also when the clock of the server was set back. No age is negative.
func TestInbox_O_clockSetBack_arrivalsRise(t *testing.T) {
	t.Parallel()
	a := newAsker(t, servers.StartRedis(t))
	a.put("first", storedriver.Done)
	a.back("first", -time.Hour)
	for _, id := range []string{"second", "third", "fourth"} {
		a.put(id, storedriver.Done)
	}
	a.pends("first", "second", "third", "fourth")
	must(t, a.client.ZAdd(t.Context(), index, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: "ahead"}).Err())
	for range 3 {
		before := a.client.ZRevRangeWithScores(t.Context(), index, 0, 0).Val()
		a.put("first", storedriver.Done)
		if now := a.client.ZRevRangeWithScores(t.Context(), index, 0, 0).Val(); now[0].Score <= before[0].Score || now[0].Member != a.key {
			t.Errorf("the index ends with %+v, %+v before", now, before)
		}
	}
}

// A full server refuses a Put, and keeps nothing of it. What is pending can be listed, and closed. In a
// Cluster, the memory of the index may be full, or that of the session.
func TestInbox_C_fullServer(t *testing.T) {
	t.Parallel()
	server, cluster := servers.StartRedis(t), servers.StartCluster(t)
	ofIndex := cluster.MasterOf(index)
	apart := "apart"
	for cluster.MasterOf("{"+apart+"}") == ofIndex {
		apart += "'"
	}
	for what, c := range map[string]struct {
		client redis.UniversalClient
		full   *servers.Redis
	}{
		"a node":       {redis.NewClient(&redis.Options{Addr: server.Addr()}), server},
		"the sessions": {redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}), cluster.MasterOf("{" + apart + "}")},
		"the index":    {redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}), ofIndex},
	} {
		for _, history := range []bool{true, false} {
			a := newAsker(t, c.client)
			a.rig = a.named(t, apart)
			must(t, a.memory.Delete(t.Context()))
			deleted := func(v storedriver.Verdict, err error) int64 { must(t, err); return v.Mark.Fence }(
				a.Driver.Put(t.Context(), storedriver.Put{Session: a.key}))
			put := func(id string) error {
				_, err := a.Driver.Put(t.Context(), storedriver.Put{Session: a.key, Deleted: deleted, ID: id, Question: []byte("of " + id)})
				return err
			}
			for _, id := range []string{"1", "2", "old"} {
				must(t, put(id))
			}
			a.back("old", storedriver.InboxLife) // it may go, but after the Put
			if history {
				must(t, a.memory.Save(t.Context(), "q", "a"))
			}
			must(t, a.client.ZRem(t.Context(), index, a.key).Err())
			do(t, c.full, "CONFIG", "SET", "maxmemory", "1")
			if err := put("new"); err == nil || !strings.Contains(err.Error(), "maxmemory") {
				t.Errorf("%s: Put: %v", what, err)
			}
			if n := a.client.HLen(t.Context(), a.inbox()).Val(); n != 3 {
				t.Errorf("%s: there are %d items", what, n)
			}
			if err := a.client.ZScore(t.Context(), index, a.key).Err(); (err == nil) != (what == "the sessions") {
				t.Errorf("%s: the index: %v", what, err)
			}
			a.pends("1", "2")
			_, err := a.Close(t.Context(), storedriver.CloseRequest{Session: a.key, ID: storedriver.HashID("1")})
			must(t, err)
			a.pends("2")
			a.listed()
			do(t, c.full, "CONFIG", "SET", "maxmemory", "0")
			must(t, put("new"))
			a.pends("2", "new")
			if what == "the sessions" { // the index takes the name, and its node has all rights
				do(t, c.full, "ACL", "SETUSER", "default", "-pexpire")
				if err := put("for ever"); !errors.Is(err, driver.ErrRights) || driver.MayHaveEffect(err) {
					t.Errorf("Put without the right to PEXPIRE: %v", err)
				}
				do(t, c.full, "ACL", "SETUSER", "default", "+pexpire")
				a.pends("2", "new")
			}
		}
	}
}

// A Put is one request on a node, and three in a Cluster, also behind a client of another type.
func TestInbox_requests(t *testing.T) {
	t.Parallel()
	proxy := faultnet.New(t, servers.StartRedis(t).Addr())
	network, cluster := faultnet.NewNet(t), servers.StartCluster(t)
	many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: network.Dial})
	for what, c := range map[string]struct {
		*asker
		counts interface {
			HoldRequests(match faultnet.Match) *faultnet.Held
		}
		want int
	}{
		"a node":           {newAsker(t, proxy), proxy, 1},
		"a Cluster":        {newAsker(t, many), network, 3},
		"a wrapped client": {newAsker(t, struct{ redis.UniversalClient }{many}), network, 3},
	} {
		c.access.Fence = time.Now().UnixMicro()
		c.put("first, "+what, storedriver.Done) // the nodes know the scripts from now on
		c.answers(1, nil, "first, "+what)
		c.pends()
		var n atomic.Int64
		counted := c.counts.HoldRequests(func(request []byte) bool {
			if bytes.Contains(request, []byte("{"+t.Name()+"}:")) || bytes.Contains(request, []byte(index)) {
				n.Add(1)
			}
			return false
		})
		is := func(call string, want int) {
			t.Helper()
			if got := int(n.Swap(0)); got != want {
				t.Errorf("%s: %s needs %d requests, want %d", what, call, got, want)
			}
		}
		c.put(what, storedriver.Done)
		is("Put", c.want)
		c.pends(what)
		is("Pending", 1)
		c.answers(2, nil, what, what+"2")
		is("Append", 1)
		counted.Release()
	}
}

// In a Cluster, the index is written before the item and after it. An empty session leaves the index, and a
// session with a question is listed, wherever a Sweep comes between, or the process dies.
func TestInbox_C_index_betweenRequests(t *testing.T) {
	t.Parallel()
	network, cluster := faultnet.NewNet(t), servers.StartCluster(t)
	other := newAsker(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
	a := newAsker(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: network.Dial}))
	a.put("first", storedriver.Done) // the nodes know the scripts from now on
	for before, c := range map[string]struct {
		request string
		nth     int
		listed  int // in a Sweep there
	}{
		"the item":             {a.inbox(), 1, 0},
		"the index once again": {index, 2, 1},
	} {
		for _, dies := range []bool{false, true} {
			must(t, a.client.Del(t.Context(), a.inbox()).Err())
			other.listed()
			ctx, cancel := context.WithCancel(t.Context())
			var n atomic.Int64
			held := network.HoldRequests(func(request []byte) bool {
				return bytes.Contains(request, []byte(c.request)) && int(n.Add(1)) == c.nth
			})
			done := make(chan error, 1)
			go func() {
				_, err := a.Driver.Put(ctx, storedriver.Put{Session: a.key, ID: before, Question: []byte("q")})
				done <- err
			}()
			held.Wait(1)
			if dies {
				cancel()
				if err := <-done; err == nil {
					t.Errorf("before %s: a Put without its last request is accepted", before)
				}
			}
			if names := other.listed(); names[a.key] != c.listed {
				t.Errorf("before %s: listed %v", before, names)
			}
			if !dies {
				held.Release()
				if err := <-done; err != nil || other.listed()[a.key] != 1 {
					t.Errorf("before %s: Put: %v; an accepted question is not listed", before, err)
				}
			}
			cancel()
		}
	}
	// A failure before the item has no effect, and one after it may have had one.
	for nth, mayHaveEffect := range map[int]bool{1: false, 2: true} {
		n := 0
		held := network.HoldRequests(func(request []byte) bool {
			if bytes.Contains(request, []byte(index)) {
				if n++; n == nth {
					do(t, cluster.MasterOf(index), "CONFIG", "SET", "maxmemory", "1")
				}
			}
			return false
		})
		_, err := a.Driver.Put(t.Context(), storedriver.Put{Session: a.key, ID: fmt.Sprint(nth)})
		held.Release()
		do(t, cluster.MasterOf(index), "CONFIG", "SET", "maxmemory", "0")
		if !errors.Is(err, driver.ErrRefused) || driver.MayHaveEffect(err) != mayHaveEffect {
			t.Errorf("no memory from request %d to the index on: %v; may have an effect: %t", nth, err, !mayHaveEffect)
		}
	}
	impatient := newAsker(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: network.Dial, ReadTimeout: 50 * time.Millisecond}))
	impatient.put("apart", storedriver.Done)
	network.DropReplies(faultnet.Containing(index))
	if _, err := impatient.Driver.Put(t.Context(), storedriver.Put{Session: a.key, ID: "lost"}); err == nil || driver.MayHaveEffect(err) {
		t.Errorf("no answer about the index: %v; want that it has no effect", err)
	}
}

// A Put comes between the list of an empty session and its removal from the index. The session stays there.
func TestInbox_C_index_putBeforeRemoval(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultnet.New(t, server.Addr())
	a, sweeper := newAsker(t, server), newAsker(t, proxy)
	a.put("gone", storedriver.Done)
	must(t, a.client.Del(t.Context(), a.inbox()).Err())
	score := fmt.Sprintf("%.0f", a.client.ZScore(t.Context(), index, a.key).Val())
	held := proxy.HoldRequests(faultnet.Containing(score))
	swept := make(chan error, 1)
	go func() {
		_, _, err := sweeper.Inboxes(t.Context(), "")
		swept <- err
	}()
	held.Wait(1)
	a.put("new", storedriver.Done)
	held.Release()
	must(t, <-swept)
	if a.listed()[a.key] == 0 {
		t.Error("a Put between the list and the removal is not listed")
	}
}

// Each Put removes 4 names that are older than 25 hours, and no other.
func TestInbox_index_oldNames(t *testing.T) {
	t.Parallel()
	a := newAsker(t, servers.StartRedis(t))
	add := func(name string, age time.Duration) {
		must(t, a.client.ZAdd(t.Context(), index, redis.Z{Score: float64(time.Now().Add(-age).UnixMicro()), Member: name}).Err())
	}
	for n := range 6 {
		add(fmt.Sprint("old", n), 25*time.Hour+time.Duration(6-n)*time.Second)
	}
	add("younger", 25*time.Hour-time.Minute)
	for _, want := range []int64{4, 2, 2} { // the younger, and this one
		a.put("q", storedriver.Done)
		if names := a.client.ZRange(t.Context(), index, 0, -1).Val(); int64(len(names)) != want || !slices.Contains(names, "younger") {
			t.Errorf("the index has %q, want %d", names, want)
		}
	}
}

// A list has each session that has a question since before, on one page or more, although they are many, and
// others end, begin, and get questions meanwhile. A session whose inbox cannot be read is listed, too.
func TestInboxes_changeWhileListed_allFound(t *testing.T) {
	t.Parallel()
	for what, client := range map[string]redis.UniversalClient{
		"a node":    redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr()}),
		"a Cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.StartCluster(t).Addrs()}),
	} {
		a := newAsker(t, client)
		put := func(name string) {
			_, err := a.Driver.Put(t.Context(), storedriver.Put{Session: name, ID: "q"})
			must(t, err)
		}
		older := time.Now().Add(-time.Hour).UnixMicro()
		add := func(name string, n int) {
			must(t, client.ZAdd(t.Context(), index, redis.Z{Score: float64(older + int64(n)), Member: name}).Err())
		}
		for n := range 500 {
			put(fmt.Sprint("kept-}%", n))
			add(fmt.Sprint("empty-", n), n)
		}
		must(t, client.HSet(t.Context(), "session:{foreign}:inbox", "x", "x").Err())
		add("foreign", 500)
		found, pages := map[string]bool{}, 0
		for next := "0"; next != ""; pages++ {
			var names []string
			var err error
			names, next, err = a.Inboxes(t.Context(), next)
			must(t, err)
			for i, name := range names {
				found[name] = true
				put(fmt.Sprint("kept-}%", 499-i-pages)) // it gets a newer score
				put(fmt.Sprint("later-", pages, "-", i))
			}
		}
		for n := range 500 {
			if !found[fmt.Sprint("kept-}%", n)] || found[fmt.Sprint("empty-", n)] {
				t.Fatalf("%s: %d is not listed, or an empty one is: %v", what, n, found)
			}
		}
		if left := client.ZRangeByScore(t.Context(), index, &redis.ZRangeBy{Min: "0", Max: fmt.Sprint(older + 500)}).Val(); fmt.Sprint(left) != "[foreign]" || !found["foreign"] || pages < 5 {
			t.Errorf("%s: %d pages, of them foreign: %t; the index still has %q", what, pages, found["foreign"], left)
		}
	}
}

// While a slot of a Cluster moves, a call may have no effect, and says so. Under a lease, it waits for the end
// of the move.
func TestInbox_slotMovesOnCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartCluster(t)
	a := newAsker(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true}))
	must(t, a.memory.SaveOnce(t.Context(), "before", "q", "a"))
	must(t, a.memory.Put(t.Context(), "first", "q"))
	for _, moved := range []string{a.inbox(), index} {
		during := func(call func()) {
			finish := cluster.BeginMove(moved, moved)
			defer finish()
			timer := time.AfterFunc(300*time.Millisecond, finish)
			defer timer.Stop()
			call()
		}
		soon := func(call func() error) {
			t.Helper()
			during(func() {
				servers.Await(t, 5*time.Second, "the end of the move", func() bool {
					err := call()
					if err != nil && !errors.Is(err, distlock.ErrUnavailable) {
						t.Errorf("while %s moves: %v", moved, err)
					}
					return err == nil
				})
			})
		}
		one, two := "1 of "+moved, "2 of "+moved
		soon(func() error { return a.memory.Put(t.Context(), one, "q") })
		soon(func() error { return a.memory.Put(t.Context(), two, "q") })
		soon(func() error { return calls["Pending"](t.Context(), a.rig) })
		soon(func() error { return calls["Inboxes"](t.Context(), a.rig) })
		a.pends("first", one, two)
		if a.listed()[a.key] == 0 {
			t.Errorf("after a move of %s, the session is not listed", moved)
		}
		a.turn(t, func(ctx context.Context) {
			during(func() {
				_, err := a.memory.AnswerAll(ctx, []lockedmemory.Question[string]{{ID: one, Message: "q"}, {ID: two, Message: "q2"}},
					func(context.Context, []lockedmemory.Question[string]) ([]string, error) { return []string{"a"}, nil })
				must(t, err)
			})
		})
		a.pends("first")
	}
	if got := a.history(t); len(got) != 2+2*3 {
		t.Errorf("the history is %q", got)
	}
}

// An Append of several IDs removes expired ones, as a SaveOnce does.
func TestAppend_removesExpiredIDs(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	for n := range 100 {
		must(t, a.client.HSet(t.Context(), a.ids(), fmt.Sprint("expired-", n), "1"+strings.Repeat("0", 58)).Err())
	}
	var all []string
	for n := range 200 {
		all = append(all, fmt.Sprint("message-", n))
	}
	a.answers(1, nil, all...)
	if n := a.client.HLen(t.Context(), a.ids()).Val(); n < 200 || n > 225 {
		t.Errorf("%d IDs, want 200 and few of the 100 expired ones", n)
	}
}
