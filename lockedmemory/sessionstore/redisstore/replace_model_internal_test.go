package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/test/pace"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// packet is a request that may arrive late, and more than once.
type packet struct {
	script *redis.Script // nil: a bare command
	args   []any
	write  *write // nil: no write
}

// write is a call that changes the history, and its effect.
type write struct {
	kind    string
	place   lockedmemory.Place
	text    string // of a Save
	replace storedriver.Replace
	applied bool
	need    lockedmemory.Place
}

// placed is an exchange as the log has it.
type placed struct {
	place lockedmemory.Place
	text  string
}

// edit is a Replace or a Clear whose process lives.
type edit struct {
	*restaging // of a Replace
	write      *write
	most       int // entries of a step
	forget     bool
}

type editModel struct {
	*testing.T
	client *redis.Client
	random *rand.Rand
	trace  []string

	keys    []string // log, mark, lock, ids, stage
	idle    time.Duration
	token   int64
	n       map[int64]int64              // by token
	need    map[int64]lockedmemory.Place // by token
	shown   int64
	highest lockedmemory.Place // of a write that has taken effect
	history []placed
	erased  []string
	ever    map[lockedmemory.Place]string
	texts   int
	late    []packet
	edits   []*edit
	last    *storedriver.Replace

	kept     string // a dump of the staging
	keptWith []any  // those of log and mark at that time
}

var (
	modelLocks            = storeLocks()
	model                 = newScripts(modelLocks)
	modelLoad, modelClear = model.load.Script, model.clear.Script
	modelAppend           = model.append.Script
	modelSwap             = model.swap.Script
	// modelStage copies 3 entries in a step.
	modelStage = redis.NewScript(strings.Replace(lua("access")+redisconn.CallsLua+modelLocks.StoreLua()+lua("session", "staging", "stage"),
		"BYTES = 50,", "BYTES = 3,", 1))
)

// storeLocks are the locks of a client that is never used.
func storeLocks() redisconn.Locks {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	locks, _ := redislock.NewDriver(client)
	return locks.(redisconn.Locks)
}

func (m *editModel) chance(of int) bool { return m.random.IntN(of) == 0 }

func (m *editModel) access(token int64) []any {
	return []any{token, 0, "0:0", false, false, "", m.idle.Milliseconds(), storedriver.KeepEmpty.Milliseconds(), 0, 0}
}

// send delivers a packet, and checks what it does.
func (m *editModel) send(p packet) *redis.Cmd {
	m.Helper()
	ctx := m.Context()
	var cmd *redis.Cmd
	if p.script == nil {
		cmd = m.client.Do(ctx, p.args...)
	} else {
		cmd = p.script.Run(ctx, m.client, m.keys, p.args...)
	}
	names := map[*redis.Script]string{modelLoad: "load", modelAppend: "append", modelClear: "clear", modelStage: "stage", modelSwap: "swap"}
	m.trace = append(m.trace, fmt.Sprintf("%s %v -> %v %v", names[p.script], p.args, cmd.Val(), cmd.Err()))
	m.check(p, cmd)
	return cmd
}

func (m *editModel) fail(format string, args ...any) {
	m.Helper()
	m.Fatalf("%s, after\n%s", fmt.Sprintf(format, args...), strings.Join(m.trace, "\n"))
}

func (m *editModel) entries() (all []placed) {
	m.Helper()
	reply, err := m.client.XRange(m.Context(), m.keys[0], "-", "+").Result()
	if err != nil {
		m.fail("%v", err)
	}
	markers := 0
	for _, e := range reply {
		if text, ok := e.Values["m"].(string); ok {
			place, _ := parsePlace(e.ID)
			all = append(all, placed{place, text})
		} else if markers++; e.Values["stage"] != nil || markers > 2 {
			m.fail("%d markers: %v", markers, reply)
		}
	}
	return all
}

// check compares the log before and after a packet.
func (m *editModel) check(p packet, cmd *redis.Cmd) {
	m.Helper()
	before, after := m.history, m.entries()
	m.history = after
	code := int64(-1)
	if words, err := cmd.Slice(); err == nil && len(words) > 0 {
		code, _ = words[0].(int64)
	} else if _, ok := cmd.Val().(string); ok && p.script == nil && cmd.Err() == nil {
		code = 0
	}
	changed := !slices.Equal(before, after)
	if w := p.write; w != nil {
		if code == 0 && p.script != modelStage {
			m.shown = max(m.shown, w.place.Fence)
			if w.kind == "save" {
				m.need[w.place.Fence] = higher(m.need[w.place.Fence], w.place)
			}
		}
		if changed {
			m.took(w, before)
		}
		want := p.script != modelStage
		switch empty := len(before) == 0 && (w.kind == "clear"); {
		case changed && !want:
			m.fail("a step of %s has changed the log", w.kind)
		case changed && code != 0:
			m.fail("%s has taken effect and is answered %d", w.kind, code)
		case want && code == 0 && !w.applied && !empty:
			m.fail("%s is answered as done, and has not taken effect", w.kind)
		case want && code == 0 && empty:
			w.applied = true
			m.highest = higher(m.highest, w.place)
		}
	} else if changed {
		m.fail("the log has changed")
	}
	for _, e := range before {
		if !slices.ContainsFunc(after, func(s placed) bool { return s.text == e.text }) {
			m.erased = append(m.erased, e.text)
		}
	}
	for i, e := range after {
		if text, ok := m.ever[e.place]; ok && text != e.text {
			m.fail("the place %s was that of %s, and is that of %s", e.place, text, e.text)
		}
		if m.ever[e.place] = e.text; i > 0 && e.place.Compare(after[i-1].place) <= 0 {
			m.fail("places do not rise: %v", after)
		}
	}
	for i, key := range m.keys {
		dump := m.client.Dump(m.Context(), key).Val()
		for _, text := range m.erased {
			if strings.Contains(dump, text) {
				m.fail("%s is erased, and in %s", text, key)
			}
		}
		ttl := m.client.PTTL(m.Context(), key).Val()
		switch {
		case i == 4 && (ttl == -1 || ttl > time.Minute), i == 0 && ttl != -2 && ttl != -1 && m.idle == 0,
			i == 0 && m.idle > 0 && (ttl == -1 || ttl > m.idle || ttl >= 0 && ttl < m.idle/2):
			m.fail("%s has the TTL %s", key, ttl)
		}
	}
}

func higher(a, b lockedmemory.Place) lockedmemory.Place {
	if a.Compare(b) > 0 {
		return a
	}
	return b
}

// took checks that a write may take effect now, and that its effect is whole.
func (m *editModel) took(w *write, before []placed) {
	m.Helper()
	switch {
	case w.applied:
		m.fail("%s at %s has taken effect twice", w.kind, w.place)
	case w.place.Fence < m.shown:
		m.fail("%s at %s has taken effect, and token %d was shown", w.kind, w.place, m.shown)
	case w.place.Compare(m.highest) <= 0:
		m.fail("%s at %s has taken effect after %s", w.kind, w.place, m.highest)
	}
	w.applied, m.highest = true, w.place
	var want []string
	for _, e := range before {
		want = append(want, e.text)
	}
	switch w.kind {
	case "save":
		want = append(want, w.text)
	case "clear":
		want = nil
	case "replace":
		first := slices.IndexFunc(before, func(e placed) bool { return e.place == w.replace.From })
		last := slices.IndexFunc(before, func(e placed) bool { return e.place == w.replace.To })
		if first < 0 || last < 0 {
			m.fail("the range %s to %s is not there", w.replace.From, w.replace.To)
		}
		var texts []string
		for _, e := range w.replace.New {
			texts = append(texts, string(e.Messages[0]))
		}
		want = slices.Concat(want[:first], texts, want[last+1:])
	}
	var got []string
	for _, e := range m.history {
		got = append(got, e.text)
	}
	if !slices.Equal(got, want) {
		m.fail("after %s the history is %v, want %v", w.kind, got, want)
	}
}

func (m *editModel) text() string {
	m.texts++
	return fmt.Sprintf("<text-%d>", m.texts)
}

// anyToken is that of the present lease, or of an earlier one.
func (m *editModel) anyToken() int64 {
	if m.chance(5) {
		return m.token - 1
	}
	return m.token
}

func (m *editModel) newWrite(kind string) *write {
	token := m.anyToken()
	m.n[token]++
	return &write{kind: kind, place: lockedmemory.Place{Fence: token, N: m.n[token]}, need: m.need[token]}
}

// dispatch sends a packet now, late, or both.
func (m *editModel) dispatch(p packet) (cmd *redis.Cmd) {
	m.Helper()
	onTheWay := m.chance(6)
	if onTheWay || m.chance(3) {
		m.late = append(m.late, p)
	}
	if onTheWay {
		return nil
	}
	cmd = m.send(p)
	if m.chance(6) {
		return nil // the answer is lost
	}
	return cmd
}

func (m *editModel) load(token int64) {
	cmd := m.dispatch(packet{script: modelLoad, args: m.access(token)})
	if cmd == nil {
		return
	}
	if words, err := cmd.Slice(); err == nil && words[0] == int64(0) {
		m.shown = max(m.shown, token)
		for _, e := range m.history {
			m.need[token] = higher(m.need[token], e.place)
		}
	}
}

func (m *editModel) save() {
	w := m.newWrite("save")
	w.text = m.text()
	entry := []any{"op", fmt.Sprintf("%032x", m.texts), "m", w.text}
	p := packet{write: w}
	if m.need[w.place.Fence] != (lockedmemory.Place{}) && w.place.Fence == m.shown && m.chance(2) {
		p.args = append([]any{"xadd", m.keys[0], "nomkstream", w.place.String()}, entry...)
	} else {
		p.script = modelAppend
		p.args = append(m.access(w.place.Fence), 0, seq(lockedmemory.Place{N: w.place.N}), entry[1], w.need.Fence, seq(w.need))
		p.args = append(p.args, "", 1, 0, 0)
		p.args = append(p.args, entry...)
	}
	m.dispatch(p)
}

func (m *editModel) begin(kind string) {
	w := m.newWrite(kind)
	op := fmt.Sprintf("%032x", m.random.Uint64())
	w.replace.Write = storedriver.Write{Access: storedriver.Access{Fence: w.place.Fence}, N: w.place.N, Op: op}
	e := &edit{write: w, most: 1 + m.random.IntN(2), forget: m.chance(3)}
	if kind == "replace" {
		if len(m.history) == 0 {
			return
		}
		i := m.random.IntN(len(m.history))
		j := i + m.random.IntN(len(m.history)-i)
		if m.chance(2) {
			j = i
		}
		w.replace.From, w.replace.To = m.history[i].place, m.history[j].place
		size := m.random.IntN(4)
		if m.last != nil && m.chance(2) { // the same again, after a crash
			w.replace.From, w.replace.To, size = m.last.From, m.last.To, len(m.last.New)
		}
		if m.chance(10) {
			w.replace.To = lockedmemory.Place{Fence: w.replace.To.Fence, N: w.replace.To.N, Sub: w.replace.To.Sub + 1}
		}
		for range size {
			w.replace.New = append(w.replace.New, storedriver.Entry{Place: w.replace.To, Messages: [][]byte{[]byte(m.text())}})
		}
		if n := len(w.replace.New); n > 0 && m.chance(2) {
			w.replace.New[0].Place = w.replace.From
		}
		m.last = &w.replace
		e.restaging = newRestaging(w.replace)
	}
	m.edits = append(m.edits, e)
}

// packet is the next step of an edit.
func (m *editModel) packet(e *edit) packet {
	w, args := e.write, m.access(e.write.place.Fence)
	switch {
	case e.restaging == nil:
		args[3] = true
		return packet{modelClear, append(args, seq(lockedmemory.Place{N: w.place.N}), w.replace.Op, e.forget), w}
	case e.step == swap:
		args[3] = true
		return packet{modelSwap, append(args, e.next(e.most)...), w}
	}
	return packet{modelStage, append(args, e.next(e.most)...), w}
}

// takeReply takes the reply to a step of an edit.
func (e *edit) takeReply(cmd *redis.Cmd) (v storedriver.Verdict, done bool, err error) {
	if e.restaging != nil {
		return e.restaging.takeReply(cmd)
	}
	v, _, err = parseVerdict(cmd)
	return v, true, err
}

// proceed makes a step of a Replace or a Clear.
func (m *editModel) proceed(i int) {
	if i < 0 || i >= len(m.edits) {
		return
	}
	e := m.edits[i]
	end := func() { m.edits = slices.Delete(m.edits, i, i+1) }
	next := m.packet(e)
	if next.script != modelStage && len(m.late) > 0 && m.chance(2) {
		m.send(m.late[len(m.late)-1-m.random.IntN(min(3, len(m.late)))])
	}
	cmd := m.dispatch(next)
	if cmd == nil {
		if m.chance(3) { // the process dies; otherwise it sends the request again
			end()
		}
		return
	}
	v, done, err := e.takeReply(cmd)
	if err != nil && !strings.Contains(err.Error(), "again and again") {
		m.fail("%v", err)
	}
	w := e.write
	overtaken := m.highest.Compare(w.place) > 0 || m.shown > w.place.Fence // then a copy may be refused
	if done && (v.Outcome == storedriver.Done) != w.applied && !overtaken {
		m.fail("%s is answered %d; it has taken effect: %t", w.kind, v.Outcome, w.applied)
	}
	if done || err != nil {
		end()
	}
}

func (m *editModel) run(steps int) {
	m.trace = append(m.trace, fmt.Sprintf("idle %s", m.idle))
	for range steps {
		switch m.random.IntN(16) {
		case 0:
			m.token++
			m.load(m.token)
		case 1:
			m.load(m.anyToken())
		case 2, 3, 4, 5:
			m.save()
		case 6:
			if m.chance(3) {
				m.begin("clear")
			}
		case 7:
			for range 1 + m.random.IntN(3) { // edits of one turn
				if m.chance(3) {
					m.save()
				}
				m.begin("replace")
				for range m.random.IntN(20) {
					m.proceed(len(m.edits) - 1)
				}
			}
		case 8, 9, 10:
			for range 4 {
				m.proceed(m.random.IntN(max(1, len(m.edits))))
			}
		case 11:
			if len(m.late) > 0 {
				m.send(m.late[m.random.IntN(len(m.late))])
			}
		case 14:
			m.lose()
		}
	}
}

// lose loses the staging, or the end of it, as a failover does.
func (m *editModel) lose() {
	ctx, stage := m.Context(), m.keys[4]
	now := []any{m.client.Dump(ctx, m.keys[0]).Val(), m.client.Dump(ctx, m.keys[1]).Val()}
	switch {
	case m.chance(8):
		m.trace = append(m.trace, "the staging is lost")
		m.client.Del(ctx, stage)
	case m.kept != "" && slices.Equal(now, m.keptWith) && m.chance(2):
		m.trace = append(m.trace, "the end of the staging is lost")
		m.client.RestoreReplace(ctx, stage, time.Minute, m.kept)
	default:
		m.kept, m.keptWith = m.client.Dump(ctx, stage).Val(), now
	}
}

// newClient is a client of a server whose dumps show texts.
func newClient(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t, "--rdbcompression", "no").Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Leases save, load, clear and replace, steps are lost, late or repeated, and processes die.
// Whatever happens: a write takes effect once and whole, in the order of places; a place has one
// content; of erased content nothing is left.
func TestReplace_S2_stepsFollowTheModel(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	for seed := uint64(206); seed < 206+uint64(pace.Rounds(100)); seed++ { // 206: a log grows behind a swap
		m := newEditModel(t, client, seed)
		if seed%2 == 1 {
			m.idle = time.Hour
		}
		if m.run(150); len(m.ever) == 0 {
			t.Fatal("nothing was stored")
		}
		client.Del(context.Background(), m.keys...)
	}
}

func newEditModel(t *testing.T, client *redis.Client, seed uint64) *editModel {
	t.Helper()
	tag := fmt.Sprintf("{%d}:", seed)
	return &editModel{T: t, client: client, random: rand.New(rand.NewPCG(seed, 1)), token: time.Now().UnixMicro(),
		keys: []string{tag + "log", tag + "mark", tag + "mark", tag + "ids", tag + "stage"},
		n:    map[int64]int64{}, need: map[int64]lockedmemory.Place{}, ever: map[lockedmemory.Place]string{},
		trace: []string{fmt.Sprint("seed ", seed)}}
}

// putIn writes an entry into the log, as another call does.
func (m *editModel) putIn(place lockedmemory.Place) {
	m.Helper()
	if err := m.client.Do(m.Context(), "xadd", m.keys[0], place.String(), "m", m.text()).Err(); err != nil {
		m.fail("%v", err)
	}
	m.history = m.entries()
}

// newEdit is a Replace of a place under the present token. Without a place it is a Fork.
func (m *editModel) newEdit(at lockedmemory.Place, with ...lockedmemory.Place) *edit {
	m.n[m.token]++
	w := &write{kind: "replace", place: lockedmemory.Place{Fence: m.token, N: m.n[m.token]}}
	access := storedriver.Access{Fence: m.token}
	w.replace = storedriver.Replace{Write: storedriver.Write{Access: access, N: w.place.N, Op: fmt.Sprintf("%032x", w.place.N)}, From: at, To: at}
	for _, place := range with {
		w.replace.New = append(w.replace.New, storedriver.Entry{Place: place, Messages: [][]byte{[]byte(m.text())}})
	}
	return &edit{restaging: newRestaging(w.replace), write: w, most: 1}
}

// makeStep makes a step of an edit, and returns the outcome of the last.
func (m *editModel) makeStep(e *edit) (outcome storedriver.Outcome, done bool) {
	m.Helper()
	v, done, err := e.takeReply(m.send(m.packet(e)))
	if err != nil {
		m.fail("%v", err)
	}
	return v.Outcome, done
}

// Two edits of one turn are as far as each other, and give their exchanges the same places. The first goes
// on with its own content, although the staging is that of the second.
func TestReplace_O_stagingOfAnother_notContinued(t *testing.T) {
	t.Parallel()
	m := newEditModel(t, newClient(t), 0)
	for n := range int64(3) {
		m.putIn(lockedmemory.Place{Fence: m.token - 1, N: n + 1})
	}
	for step := copyHead; step <= swap; step++ {
		at := m.history[1].place
		first, second := m.newEdit(at, at), m.newEdit(at, at)
		for _, e := range []*edit{first, second} {
			for e.step < step {
				m.makeStep(e)
			}
		}
		for done := false; !done; {
			_, done = m.makeStep(first)
		}
		if !first.write.applied {
			m.fail("the first edit has not taken effect")
		}
	}
}

// A session that begins while a Fork stages its copy is not replaced.
func TestFork_O_begunBeforeSwap_refused(t *testing.T) {
	t.Parallel()
	m := newEditModel(t, newClient(t), 0)
	e := m.newEdit(lockedmemory.Place{}, lockedmemory.Place{Fence: m.token - 2, N: 1})
	for e.step != swap {
		m.makeStep(e)
	}
	m.putIn(lockedmemory.Place{Fence: m.token - 1, N: 1})
	if outcome, done := m.makeStep(e); done || e.step != begin {
		t.Fatalf("the swap: %d, %t", outcome, done)
	}
	if outcome, done := m.makeStep(e); !done || outcome != storedriver.NotEmpty {
		t.Errorf("the next staging: %d, %t; want NotEmpty", outcome, done)
	}
	if len(m.entries()) != 1 {
		t.Errorf("the log has %v", m.entries())
	}
}

// Every entry of a session is a Save, a marker, or an error with the place alone. A Save keeps all
// fields of its entry.
func FuzzEntries(f *testing.F) {
	op := strings.Repeat("0f", 16)
	for i, fields := range [][8]string{
		{"op", op, "m", "q", "m", "a"}, {"op", op, "m", "q", "id", "x"}, {"op", op, "id", "x", "m", "q"},
		{"op", op, "m", "q", "id", "x", "id", "y"}, {"op", op, "m", "q", "id", "", "id", "y"},
		{"mark", ""}, {"swap", op}, {"mark", "x"}, {"swap", "x"}, {"mark", "", "more", "x"}, {"op", op}, {"op", op, "m", "q", "m", "q", "id", "a"},
		{"op", op, "m", "\x00\xff\r\n", "m", "*1\r\n"}, {"m", "q", "m", "a"}, {"", "", "", "", "", "", "", ""}, {"op", op, "m", "q", "id", "x", "no", "1"},
		{"op", op, "m", "q", "id", "", "", ""}, {"op", op, "id", "x"}, {"op", op, "m", "q", "m", "a", "m", "r"},
	} {
		length := uint8(8)
		for length > 0 && fields[length-1] == "" {
			length--
		}
		for _, id := range []string{"1795225289897391-1", "18446744073709551615-18446744073709551615", "9007199254740992-7", "0-0", "1", "-", "01-01", "1--1", "+1-1"} {
			for more := range uint8(2) {
				f.Add(id, fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6], fields[7], length+more, uint8(i))
			}
		}
	}
	f.Fuzz(func(t *testing.T, id, a, b, c, d, e, g, h, i string, length, strange uint8) {
		texts := []string{a, b, c, d, e, g, h, i}
		texts = texts[:min(int(length), len(texts))]
		fields := make([]any, len(texts))
		for n, text := range texts {
			fields[n] = text
		}
		place, ok := parsePlace(id)
		if again, same := parsePlace(place.String()); ok && (!same || again != place || place.Fence < 0 || place.N < 0) {
			t.Errorf("%q is the place %+v, and that is %+v", id, place, again)
		}
		check(t, place, texts, fields)

		reply := []any{[]any{id, fields}, []any{id, nil}, []any{id, []any{int64(strange), nil}}, []any{id, []any{fields, fields}}}
		for _, reply := range [][]any{reply, {fields}, {nil}, {id}, {[]any{nil, fields}}, {[]any{id, fields, fields}}, {[]any{int64(1), fields}}} {
			entries, last, err := parseEntries(reply)
			if understood := ok && len(reply) == 4; (err == nil) != understood && len(fields) != 2 {
				t.Errorf("%q: %v", reply, err)
			}
			if n := len(reply); err == nil && (last != place || len(entries) > n || len(entries) < n-1) {
				t.Errorf("%q: %d entries, the last at %s", reply, len(entries), last)
			}
		}

		for _, reply := range [][]any{{int64(strange)}, {int64(strange), id}, {int64(strange), fields}, {id}, {}, fields} {
			cmd := redis.NewCmd(context.Background())
			cmd.SetVal(reply)
			v, _, err := parseVerdict(cmd)
			if err == nil && (v.Outcome < storedriver.Done || v.Mark.Fence < 0 || v.Mark.N < 0) {
				t.Errorf("%q: %+v", reply, v)
			}
		}
	})
}

func check(t *testing.T, place lockedmemory.Place, texts []string, fields []any) {
	t.Helper()
	entry, isMark := parseEntry(place, fields)
	if isMark != (len(texts) == 2 && (texts[0] == "mark" && texts[1] == "" || texts[0] == "swap" && len(texts[1]) == 32)) {
		t.Errorf("%q is a marker: %t", texts, isMark)
	}
	if isMark {
		return
	}
	if entry.Place != place {
		t.Errorf("%q: its place is %s, not %s", texts, entry.Place, place)
	}
	if entry.Err != nil {
		if entry.Messages != nil || entry.Also != nil || entry.ID != "" || entry.Size != len(strings.Join(texts, "")) {
			t.Errorf("%q: %+v with an error", texts, entry)
		}
		return
	}
	// All fields, in their order.
	kept := []string{"op", texts[1]}
	for _, message := range entry.Messages {
		kept = append(kept, "m", string(message))
	}
	if entry.ID != "" {
		kept = append(kept, "id", entry.ID)
	}
	for _, id := range entry.Also {
		kept = append(kept, "id", id)
	}
	if entry.Pinned {
		kept = append(kept, "pin", texts[len(texts)-1])
	}
	if !slices.Equal(kept, texts) || len(entry.Messages) == 0 || place.Fence > driver.MaxFence {
		t.Errorf("%s: %q was parsed as %+v", place, texts, entry)
	}
}
