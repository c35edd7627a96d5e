package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

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
	if known, ok := m.ids[c.ID]; ok && known.digest != c.Digest {
		return storedriver.Conflict
	} else if ok {
		m.load(w) // refused or not: the exchange is stored
		return storedriver.Known
	}
	o := m.append(w)
	if o == storedriver.Done && c.ID != "" {
		m.ids[c.ID] = named{c.Digest, m.at(w)}
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
	for seed := range uint64(600) {
		random := rand.New(rand.NewPCG(seed, 0))
		run(t, client, d, access, fmt.Sprintf("%s-%d", t.Name(), seed), random, seed >= 400)
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
			c.ID, c.Digest = string("abc"[random.IntN(3)]), [16]byte{byte(random.IntN(3))}
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
			page, err = d.Read(ctx, storedriver.Read{Access: c.Access, ID: c.ID, Limit: 100})
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
		trace = append(trace, fmt.Sprintf("%s %d-%d id %q need %s: %d", c.kind, c.Fence, c.N, c.ID, c.HistoryUpTo, v.Outcome))
		is := func(e storedriver.Entry, w storedriver.Write) bool { return string(e.Messages[0]) == w.Op }
		if v.Outcome != want || !slices.EqualFunc(page.Entries, m.history, is) {
			t.Fatalf("session %s: want outcome %d and %d exchanges, got %d and %d, after\n%q", session, want, len(m.history), v.Outcome, len(page.Entries), trace)
		}
		if record, known := m.ids[c.ID]; c.ID != "" {
			found, err := d.Read(ctx, storedriver.Read{Access: storedriver.Access{Session: session}, ID: c.ID, Limit: 1})
			must(t, err)
			there := slices.ContainsFunc(m.history, func(w storedriver.Write) bool { return m.at(w) == record.place })
			if found.Known != known || len(found.Entries) > 0 != (known && there) || known && there && found.Entries[0].Place != record.place {
				t.Fatalf("session %s: the ID %s is known: %t, at %v; want %t, at %s, after\n%q", session, c.ID, found.Known, found.Entries, known, record.place, trace)
			}
		}
		shown[c.Fence] = shown[c.Fence] || c.kind != "expire" && v.Outcome == storedriver.Done
		if v.Outcome == storedriver.Done && len(page.Entries) > 0 && (c.kind == "load" || c.kind == "save") {
			need[c.Fence%2] = higher(need[c.Fence%2], page.Entries[len(page.Entries)-1].Place)
		}
	}
}
