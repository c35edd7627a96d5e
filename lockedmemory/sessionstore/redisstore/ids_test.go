package redisstore_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/pace"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// ids is the session of a rig. Its driver writes exchanges with IDs under rising tokens, from 1 on.
type ids struct {
	*testing.T
	*rig
	storedriver.Driver
	access storedriver.Access
	fence  *int64
}

func newIDs(t *testing.T) *ids {
	s := &ids{T: t, rig: newRig(t), fence: new(int64)}
	// A session with a mark admits small tokens.
	must(t, s.client.Set(t.Context(), s.mark(), "1:0-0:e:::0:", 0).Err())
	return s.remembering(0)
}

// remembering is the same session, with a driver that remembers IDs for a time.
func (s *ids) remembering(d time.Duration) *ids {
	other := *s
	other.Driver, other.access = driverOf(s.T, s.client, storedriver.Retention{RememberIDs: d})
	other.access.Session = s.key
	return &other
}

// save stores an exchange under an ID and a token.
func (s *ids) save(id string, fence int64, want storedriver.Outcome) {
	s.Helper()
	s.saveAll(fence, want, id)
}

// saveAll stores an exchange under several IDs and a token.
func (s *ids) saveAll(fence int64, want storedriver.Outcome, all ...string) {
	s.Helper()
	*s.fence++
	a := s.access
	a.Fence = fence
	v, err := s.Append(s.Context(), storedriver.Append{
		Write:   storedriver.Write{Access: a, N: 3, Op: fmt.Sprintf("%032x", *s.fence)},
		Content: storedriver.Content{Messages: [][]byte{{'m'}}, IDs: all, Digest: [16]byte{'d'}},
	})
	if err != nil || v.Outcome != want {
		s.Fatalf("%q under %d: %+v, %v; want %d", all, fence, v, err, want)
	}
}

func (s *ids) saves(id string) {
	s.Helper()
	s.save(id, *s.fence+1, storedriver.Done)
}

func fieldOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return string(sum[:16])
}

// A record of another program, or of a later version of this library, is not overwritten, and decides nothing.
func TestIDs_O_foreignRecord_refused(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	ctx := t.Context()
	sound := "1" + fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()) + strings.Repeat("0", 45)
	for _, record := range []string{
		"", "x", "1", sound[:13], sound[:58], sound + "0", sound + sound[14:], "2" + sound[1:], " " + sound[1:],
		"1 " + sound[2:], sound[:13] + "x" + sound[14:], strings.Repeat("x", 59),
	} {
		must(t, s.client.HSet(ctx, s.ids(), fieldOf("id"), record).Err())
		for _, name := range []string{"SaveOnce", "Answered", "Answer", "AnswerAll", "Put", "Stop"} {
			call := func(ctx context.Context) error { return calls[name](ctx, s) }
			for i, err := range []error{call(ctx), s.memory.Turn(ctx, call)} {
				if !errors.Is(err, distlock.ErrRefused) || !strings.Contains(err.Error(), `ends in "ids"`) {
					t.Errorf("%s (%d) with the record %q: %v", name, i, record, err)
				}
			}
		}
		if kept := s.client.HGet(ctx, s.ids(), fieldOf("id")).Val(); kept != record {
			t.Errorf("the record %q is now %q", record, kept)
		}
	}
	if n := s.client.XLen(ctx, s.log()).Val(); n > 0 {
		t.Errorf("there are %d entries", n)
	}
}

// A write that is refused leaves the arrivals of its messages.
func TestIDs_O_refusedWrite_keepsTheArrival(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	closing := func(c storedriver.CloseRequest) storedriver.Outcome {
		c.Session = s.key
		reply, err := s.Close(t.Context(), c)
		must(t, err)
		return reply.Outcome
	}
	s.saves("1")
	s.saves("2")
	for _, isFirst := range []bool{true, false} {
		old := storedriver.HashID(fmt.Sprint("old", isFirst))
		for _, id := range []string{old, storedriver.HashID(fmt.Sprint("new", isFirst))} {
			closing(storedriver.CloseRequest{By: id})
		}
		s.access.FirstAccess = isFirst
		s.save(fmt.Sprint("old", isFirst), 1, storedriver.Stale)
		s.saveAll(1, storedriver.Stale, "other", fmt.Sprint("old", isFirst))
		if by := closing(storedriver.CloseRequest{By: old, Below: 3}); by != storedriver.Superseded {
			t.Errorf("first access %t: outcome %d, want Superseded", isFirst, by)
		}
	}
}

// Replaced content is at sub-places of its place. The record does not change. Each ID of an exchange finds it.
func TestIDs_replacedContent_isFound(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	s.saveAll(1, storedriver.Done, "id", "id2", "id3")
	must(t, s.client.XDel(t.Context(), s.log(), "1-3000000").Err())
	for _, e := range [][2]string{{"1-3000001", "id id"}, {"1-3000002", "id other id other2"}, {"1-3000003", "id id id id2 id id3 pin "}, {"1-4000000", "id id"}} {
		fields := append([]string{"op", strings.Repeat("0", 32), "m", "new"}, strings.Split(e[1], " ")...)
		if e[1] == "id id" && e[0] < "1-4" { // a message is no ID
			fields = []string{"op", strings.Repeat("0", 32), "m", "id"}
		}
		must(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.log(), ID: e[0], Values: fields}).Err())
	}
	for _, id := range []string{"id", "id2", "id3"} {
		page, err := s.Read(s.Context(), storedriver.Read{Access: storedriver.Access{Session: s.key}, ID: id, Limit: 1})
		must(t, err)
		if len(page.Entries) != 1 || page.Entries[0].Place.String() != "1-3000003" || !page.Known || !page.Entries[0].Pinned ||
			page.Entries[0].ID != "id" || !slices.Equal(page.Entries[0].Also, []string{"id2", "id3"}) {
			t.Errorf("%s: %+v", id, page) // the content at 1-4000000 is that of a next exchange
		}
	}
}

// A session has one key of IDs. The key lives as long as its last ID. A SaveOnce removes
// expired IDs.
func TestIDs_areInOneKey(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	long, short := s.remembering(time.Hour), s.remembering(time.Second)
	many := func(by *ids, times int) {
		for range times {
			by.saves(fmt.Sprint(*s.fence))
		}
	}
	many(long, 1)
	record, want := s.client.HGet(t.Context(), s.ids(), fieldOf("0")).Val(), "d"+strings.Repeat("\x00", 15)+"0000000000000001"+"0000000000003"
	if len(record) != 59 || record[0] != '1' || record[14:] != want {
		t.Errorf("the record is %q, want '1', 13 digits and %q", record, want)
	}
	var until int64
	if _, err := fmt.Sscanf(record[1:14], "%d", &until); err != nil || time.Until(time.UnixMilli(until)).Round(time.Minute) != time.Hour {
		t.Errorf("the ID is known until %s, %v", time.UnixMilli(until), err)
	}
	many(short, 40)
	if life := s.client.PTTL(t.Context(), s.ids()).Val(); life < time.Hour/2 {
		t.Errorf("a shorter RememberIDs has cut the life of the IDs to %s", life)
	}
	time.Sleep(time.Second + 10*time.Millisecond) // the 40 expire
	long.save("stale", 1, storedriver.Stale)
	long.saves("stale") // the ID of a refused Save is not known
	many(long, 98)
	if known := s.client.HLen(t.Context(), s.ids()).Val(); known < 100 || known > 110 {
		t.Errorf("%d turn IDs, want 100 and few of the 40 expired ones", known)
	}
	if keys := s.client.Keys(t.Context(), "session:{"+s.key+"}:*").Val(); len(keys) != 3 { // with log and mark
		t.Errorf("the keys are %q", keys)
	}
}

// A Save inside a turn prolongs the life of its session, also with an ID. If Redis refuses that, the
// exchange is stored, and the outcome is unknown to the caller. If Redis refuses the life of the ID alone,
// nothing is stored, and the ID is not known.
func TestIDs_C_inTurn_prolongsLife(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	right := func(r string) { do(t, server, "ACL", "SETUSER", "default", r+"pexpire") }
	s := newRig(t, server, &sessionstore.Retention{IdleTTL: time.Hour})
	s.turn(t, func(ctx context.Context) {
		must(t, s.memory.SaveOnce(ctx, "1", "q", "a"))
		must(t, s.client.PExpire(ctx, s.log(), time.Minute).Err())
		must(t, s.memory.SaveOnce(ctx, "2", "q2", "a2"))
		if life := s.client.PTTL(ctx, s.log()).Val(); life < 59*time.Minute {
			t.Errorf("the session lives for %s", life)
		}
		right("-")
		if err := s.memory.SaveOnce(ctx, "3", "q3", "a3"); !errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("Save: %v", err)
		}
		right("+")
	})
	if got := s.history(t); len(got) != 6 {
		t.Errorf("the history is %q", got)
	}
	s.keep = nil
	s = s.named(t, "for ever")
	s.turn(t, func(ctx context.Context) {
		must(t, s.memory.Save(ctx, "q", "a"))
		right("-")
		if err := s.memory.SaveOnce(ctx, "id", "q2", "a2"); !errors.Is(err, distlock.ErrRefused) {
			t.Errorf("Save: %v", err)
		}
		right("+")
		must(t, s.memory.SaveOnce(ctx, "id", "q2", "a2"))
	})
	if got := s.history(t); len(got) != 4 {
		t.Errorf("the history is %q", got)
	}
}

// Saves inside a turn remove expired IDs. Data of another program stays.
func TestIDs_inTurn_removesExpired(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	s.turn(t, func(ctx context.Context) {
		must(t, s.memory.Save(ctx, "q", "a"))
		must(t, s.client.HSet(ctx, s.ids(), "foreign", "0").Err())
		for n := range 100 {
			must(t, s.client.HSet(ctx, s.ids(), fmt.Sprint("expired-", n), "1"+strings.Repeat("0", 58)).Err())
		}
		for n := range 200 {
			must(t, s.memory.SaveOnce(ctx, fmt.Sprint("message-", n), "q", "a"))
		}
	})
	expired := 0
	for field := range s.client.HGetAll(t.Context(), s.ids()).Val() {
		if strings.HasPrefix(field, "expired-") {
			expired++
		}
	}
	if foreign := s.client.HGet(t.Context(), s.ids(), "foreign").Val(); expired > 25 || foreign != "0" {
		t.Errorf("%d expired IDs of 100 are left, and the data of another program is %q", expired, foreign)
	}
}

// An ID uses as much memory as doc.go states.
func TestIDs_size(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	most := map[int]int64{100: 90, 500: 90, 1000: 140}
	for n := 1; n <= 1000; n++ {
		s.saves(fmt.Sprint("message-", n))
		if most[n] == 0 {
			continue
		}
		if size := s.client.MemoryUsage(t.Context(), s.ids(), 0).Val() / int64(n); size > most[n] {
			t.Errorf("with %d IDs, one has %d B, want at most %d", n, size, most[n])
		}
	}
}

// model is the table of states in docs/design/sessions.md, without Redis.
type model struct {
	there   bool
	history []storedriver.Write
	last    lockedmemory.Place // the highest place that the Stream has seen; it ends with the log
	mark    lockedmemory.Place
	begun   bool   // state l
	op      string // of the last Clear under the token of the mark
	ids     map[string]named
}

// named is what the record of an ID says.
type named struct {
	digest [16]byte
	place  lockedmemory.Place
}

func (m *model) at(w storedriver.Write) lockedmemory.Place {
	return lockedmemory.Place{Fence: w.Fence, N: w.N}
}

// refuses judges a place. The place of a Load has N 0.
func (m *model) refuses(w storedriver.Write) (storedriver.Outcome, bool) {
	highest := m.mark
	if m.there {
		highest = m.last
	}
	switch {
	case highest.Fence > w.Fence:
		return storedriver.Stale, true
	case m.at(w).Compare(highest) <= 0 && highest != (lockedmemory.Place{}):
		return storedriver.Taken, true
	}
	return storedriver.Done, false
}

func (m *model) load(w storedriver.Write) storedriver.Outcome {
	w.N = 0
	if o, _ := m.refuses(w); o == storedriver.Stale {
		return o
	}
	if m.there {
		m.last = higher(m.last, m.at(w))
	}
	if m.mark.Fence != w.Fence {
		m.mark, m.begun, m.op = m.at(w), m.there, ""
	}
	return storedriver.Done
}

func (m *model) clear(w storedriver.Write) storedriver.Outcome {
	if !m.there && m.op == w.Op && m.mark.Fence == w.Fence {
		return storedriver.Done
	}
	if o, refused := m.refuses(w); refused {
		return o
	}
	*m = model{mark: m.at(w), op: w.Op, ids: m.ids}
	return storedriver.Done
}

func (m *model) save(w storedriver.Write, c storedriver.Content) storedriver.Outcome {
	id := strings.Join(c.IDs, "")
	if known, ok := m.ids[id]; ok && known.digest != c.Digest {
		return storedriver.Conflict
	} else if ok {
		m.load(w) // refused or not: the exchange is stored
		return storedriver.Known
	}
	o := m.append(w)
	if o == storedriver.Done && id != "" {
		m.ids[id] = named{c.Digest, m.at(w)}
	}
	return o
}

func (m *model) append(w storedriver.Write) storedriver.Outcome {
	if slices.ContainsFunc(m.history, func(old storedriver.Write) bool { return old.Op == w.Op }) {
		return storedriver.Done
	}
	if o, refused := m.refuses(w); refused {
		return o
	}
	own := m.mark.Fence == w.Fence
	explained := !m.begun && m.op != "" && m.mark.Compare(w.HistoryUpTo) > 0
	if !m.there && (w.HistoryUpTo != (lockedmemory.Place{}) && !explained || w.HistoryUpTo == (lockedmemory.Place{}) && own && m.begun) {
		return storedriver.Gone
	}
	m.there, m.last, m.history = true, m.at(w), append(m.history, w)
	if !own {
		m.mark, m.op = lockedmemory.Place{Fence: w.Fence}, ""
	}
	m.begun = true
	return storedriver.Done
}

func higher(a, b lockedmemory.Place) lockedmemory.Place {
	if a.Compare(b) > 0 {
		return a
	}
	return b
}

// Holders load, save and clear under rising tokens, in the last runs also with IDs. Packets come late
// and twice, and the log expires. In any order, the scripts follow the table of states. Each Save is
// also in a history whose beginning its holder has seen.
func TestDriver_S2_tableOfStates(t *testing.T) {
	t.Parallel()
	client := newRig(t).client
	d, access := driverOf(t, client, storedriver.Retention{})
	for seed := range uint64(pace.Rounds(600)) {
		random := rand.New(rand.NewPCG(seed, 0))
		run(t, client, d, access, fmt.Sprintf("%s-%d", t.Name(), seed), random, seed%3 == 2)
		if t.Failed() {
			return
		}
	}
}

func run(t *testing.T, client redis.UniversalClient, d storedriver.Driver, access storedriver.Access, session string, random *rand.Rand, withIDs bool) {
	type call struct {
		kind string
		storedriver.Append
	}
	var (
		m     = model{ids: map[string]named{}}
		sent  []call
		trace []string
		need  [2]lockedmemory.Place // of two leases, whose tokens rise
		shown = map[int64]bool{}
		n     = int64(1)
		ctx   = t.Context()
	)
	for step := range 25 {
		a := access
		a.Session, a.Fence = session, access.Fence+random.Int64N(2)*random.Int64N(2)+int64(step/8)
		a.HistoryUpTo, a.FirstAccess = need[a.Fence%2], !shown[a.Fence] || random.IntN(2) == 0
		n += min(1, random.Int64N(5)) // two writes may have one place
		c := call{kind: []string{"load", "save", "save", "clear", "expire"}[random.IntN(5)]}
		c.Write = storedriver.Write{Access: a, N: n, Op: fmt.Sprintf("%032x", step)}
		c.Messages = [][]byte{[]byte(c.Op)}
		if withIDs && random.IntN(2) == 0 {
			c.IDs, c.Digest = []string{string("abc"[random.IntN(3)])}, [16]byte{byte(random.IntN(3))}
		}
		if len(sent) > 0 && random.IntN(3) == 0 {
			c = sent[random.IntN(len(sent))]
		} else if sent = append(sent, c); random.IntN(4) == 0 {
			continue // the packet is late
		}
		var v storedriver.Verdict
		var err error
		want := storedriver.Done
		switch c.kind {
		case "expire":
			client.Del(ctx, "session:{"+session+"}:log")
			m.there, m.history = false, nil
		case "load":
			var page storedriver.Page
			page, err = d.Read(ctx, storedriver.Read{Access: c.Access, ID: strings.Join(c.IDs, ""), Limit: 100})
			if v = page.Verdict; c.FirstAccess {
				want = m.load(c.Write)
			}
		case "save":
			v, err = d.Append(ctx, c.Append)
			want = m.save(c.Write, c.Content)
		case "clear":
			v, err = d.Clear(ctx, storedriver.Clear{Write: c.Write})
			want = m.clear(c.Write)
		}
		must(t, err)
		page, err := d.Read(ctx, storedriver.Read{Access: storedriver.Access{Session: session}, Limit: 100})
		must(t, err)
		trace = append(trace, fmt.Sprintf("%s %d-%d id %q need %s: %d", c.kind, c.Fence, c.N, c.IDs, c.HistoryUpTo, v.Outcome))
		is := func(e storedriver.Entry, w storedriver.Write) bool { return string(e.Messages[0]) == w.Op }
		if v.Outcome != want || !slices.EqualFunc(page.Entries, m.history, is) {
			t.Fatalf("session %s: want outcome %d and %d exchanges, got %d and %d, after\n%q", session, want, len(m.history), v.Outcome, len(page.Entries), trace)
		}
		if record, known := m.ids[strings.Join(c.IDs, "")]; len(c.IDs) > 0 {
			found, err := d.Read(ctx, storedriver.Read{Access: storedriver.Access{Session: session}, ID: c.IDs[0], Limit: 1})
			must(t, err)
			there := slices.ContainsFunc(m.history, func(w storedriver.Write) bool { return m.at(w) == record.place })
			if found.Known != known || len(found.Entries) > 0 != (known && there) || known && there && found.Entries[0].Place != record.place {
				t.Fatalf("session %s: the ID %s is known: %t, at %v; want %t, at %s, after\n%q", session, c.IDs, found.Known, found.Entries, known, record.place, trace)
			}
		}
		shown[c.Fence] = shown[c.Fence] || c.kind != "expire" && v.Outcome == storedriver.Done
		if v.Outcome == storedriver.Done && len(page.Entries) > 0 && (c.kind == "load" || c.kind == "save") {
			need[c.Fence%2] = higher(need[c.Fence%2], page.Entries[len(page.Entries)-1].Place)
		}
	}
}
