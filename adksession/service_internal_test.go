package adksession

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

// full is an event in which each field has a value, except Partial.
func full() *session.Event {
	return &session.Event{
		LLMResponse: model.LLMResponse{
			Content:          genai.NewContentFromText("a \u0000 <b>", genai.RoleModel),
			CitationMetadata: &genai.CitationMetadata{Citations: []*genai.Citation{{Title: "t"}}}, GroundingMetadata: &genai.GroundingMetadata{WebSearchQueries: []string{"q"}},
			UsageMetadata:      &genai.GenerateContentResponseUsageMetadata{TotalTokenCount: 3},
			CustomMetadata:     map[string]any{"k": []any{"v", 1.5}},
			LogprobsResult:     &genai.LogprobsResult{ChosenCandidates: []*genai.LogprobsResultCandidate{{Token: "t"}}},
			InputTranscription: &genai.Transcription{Text: "in"}, OutputTranscription: &genai.Transcription{Text: "out"},
			ModelVersion: "m", SessionResumptionHandle: "h", TurnComplete: true, Interrupted: true, ErrorCode: "c", ErrorMessage: "e",
			FinishReason: genai.FinishReasonStop, AvgLogprobs: 0.5,
		},
		ID: "id", Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), InvocationID: "i", Branch: "b", IsolationScope: "s", Author: "a",
		Actions: session.EventActions{
			StateDelta: map[string]any{"k": "v\u0000"}, ArtifactDelta: map[string]int64{"f": 1},
			RequestedToolConfirmations: map[string]toolconfirmation.ToolConfirmation{"c": {Hint: "h", Confirmed: true, Payload: "p"}},
			SkipSummarization:          true, TransferToAgent: "t", Escalate: true,
		},
		LongRunningToolIDs: []string{"l"}, Routes: []string{"r"}, RequestedInput: &session.RequestInput{InterruptID: "x", Message: "m", Payload: "p"},
		Output: map[string]any{"o": 1.0}, NodeInfo: &session.NodeInfo{Path: "p", MessageAsOutput: true, OutputFor: []string{"p"}},
	}
}

// empty returns the names of the fields without a value.
func empty(v reflect.Value) (names []string) {
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous || f.Name == "Actions" {
			names = append(names, empty(v.Field(i))...)
		} else if v.Field(i).IsZero() {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestEvent_allFieldsReturn(t *testing.T) {
	r := newRig(t)
	h, e := r.create(t), full()
	if names := empty(reflect.ValueOf(*e)); !slices.Equal(names, []string{"Partial"}) {
		t.Fatalf("the event has no %q", names)
	}
	must(t, r.AppendEvent(t.Context(), h, e))
	got := r.must(t, t.Context())
	if want := full(); !reflect.DeepEqual(got.Events().At(0), want) || !reflect.DeepEqual(h.Events().At(0), want) {
		t.Errorf("%+v and %+v, want %+v", got.Events().At(0), h.Events().At(0), want)
	}
	if v, err := got.State().Get("k"); err != nil || v != "v\u0000" {
		t.Errorf("the state has %q, %v", v, err)
	}
	if !got.LastUpdateTime().Equal(h.LastUpdateTime()) || time.Since(h.LastUpdateTime()).Abs() > time.Minute {
		t.Errorf("updated at %s and %s", got.LastUpdateTime(), h.LastUpdateTime())
	}
}

// Fields of a newer version survive. A newer format is refused.
func TestEvent_newer(t *testing.T) {
	r := newRig(t)
	must(t, r.AppendEvent(t.Context(), r.create(t), event("1")))
	change := func(from, to string) string {
		record := r.client.LIndex(t.Context(), r.key("e:"), 0).Val()
		record = strings.Replace(record, from, to, 1)
		must(t, r.client.LSet(t.Context(), r.key("e:"), 0, record).Err())
		return record
	}
	record := change(`"e":{`, `"e":{"future":1,`)
	must(t, r.AppendEvent(t.Context(), r.must(t, t.Context()), event("2")))
	if got := r.client.LIndex(t.Context(), r.key("e:"), 0).Val(); got != record || !strings.Contains(got, "future") {
		t.Errorf("the record is %s", got)
	}
	change(`"v":1`, `"v":2`)
	_, err := r.get(t.Context())
	wantError(t, "a newer record", err, ErrCodec)
}

func TestGet_filters(t *testing.T) {
	r := newRig(t)
	h := r.create(t)
	for i := range 3 {
		e := event(fmt.Sprint(i))
		e.Timestamp = time.Unix(int64(100-i), 0) // the order is that of the appends
		must(t, r.AppendEvent(t.Context(), h, e))
	}
	for _, c := range []struct {
		recent, read int
		after        int64
		want         string
	}{{0, 3, 0, "012"}, {2, 2, 0, "12"}, {9, 3, 0, "012"}, {0, 3, 99, "01"}, {1, 3, 99, "1"}} {
		r.faulty.on(opGet, 1, func(_ request, do func() (reply, error)) (reply, error) {
			a, err := do()
			if len(a.records) != c.read {
				t.Errorf("recent %d, after %d: %d records were read, want %d", c.recent, c.after, len(a.records), c.read)
			}
			return a, err
		})
		req := &session.GetRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name, NumRecentEvents: c.recent}
		if c.after > 0 {
			req.After = time.Unix(c.after, 0)
		}
		found, err := r.Get(t.Context(), req)
		must(t, err)
		var got string
		for e := range found.Session.Events().All() {
			got += textOf(e)
		}
		if got != c.want {
			t.Errorf("recent %d, after %d: %s, want %s", c.recent, c.after, got, c.want)
		}
	}
}

// A failover drops an append of the lease. Neither the new handle nor the old one may go on.
func TestGet_again_placeDiffers(t *testing.T) {
	r := newRig(t)
	r.create(t)
	r.under(t, func(ctx context.Context) {
		h := r.must(t, ctx)
		restore := r.backup(t)
		must(t, r.AppendEvent(ctx, h, event("1")))
		restore()
		_, err := r.get(ctx)
		wantError(t, "the second Get", err, ErrStale)
		wantError(t, "the handle of the first Get", r.AppendEvent(ctx, h, event("2")), ErrStale)
	})
	// Deleted and created: another session.
	r.under(t, func(ctx context.Context) {
		before := r.must(t, ctx)
		must(t, r.delete(ctx))
		created, err := r.Create(ctx, &session.CreateRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name})
		must(t, err)
		must(t, r.AppendEvent(ctx, created.Session, event("1")))
		must(t, r.AppendEvent(ctx, r.must(t, ctx), event("2")))
		wantError(t, "the handle of the session before", r.AppendEvent(ctx, before, event("3")), ErrStale)
		must(t, r.delete(ctx))
		r.create(t) // by another process
		_, err = r.get(ctx)
		wantError(t, "the Get of the other session", err, ErrStale)
	})
	r.wantHistory(t)
}

// The lock service has lost its data, and its clock was set back. The owner gets a higher token, once.
func TestGet_locksFlushed(t *testing.T) {
	r := newRig(t)
	r.create(t)
	raise := func(by int64) {
		if r.db != nil {
			r.sql(t, "UPDATE adk_session SET mark = greatest(mark, %d) + %d WHERE namespace = '%s'", time.Now().UnixMicro(), by, r.ns)
			return
		}
		mark, err := r.client.HGet(t.Context(), r.key("s:"), "m").Int64()
		must(t, err)
		must(t, r.client.HSet(t.Context(), r.key("s:"), "m", max(mark, time.Now().UnixMicro())+by).Err())
	}
	raise(1e9)
	r.under(t, func(ctx context.Context) {
		h := r.must(t, ctx)
		must(t, r.AppendEvent(ctx, h, event("1")))
		raise(1e9) // by a later holder
		wantError(t, "after a higher mark", r.AppendEvent(ctx, h, event("2")), ErrStale)
	})
	r.wantHistory(t, "1")
}

// A holder that has lost its lock gets no higher token.
func TestGet_lostLock_noToken(t *testing.T) {
	r, other := newRig(t), newRig(t)
	r.create(t)
	err := r.locker.Do(t.Context(), r.id.key(), func(ctx context.Context) error {
		must(t, r.client.Del(t.Context(), r.lock()).Err())
		other.under(t, func(ctx context.Context) { other.must(t, ctx) })
		_, err := r.get(ctx)
		wantError(t, "the Get of the old holder", err, distlock.ErrLost)
		return nil
	})
	wantError(t, "the old holder", err, distlock.ErrLost)
}

// ADK creates a session after any error of a Get.
func TestGet_repeatsFor5s(t *testing.T) {
	r := newRig(t)
	must(t, r.AppendEvent(t.Context(), r.create(t), event("1")))
	r.faulty.on(opGet, 3, func(request, func() (reply, error)) (reply, error) { return reply{}, io.EOF })
	r.wantHistory(t, "1")
	r.faulty.on(opGet, -1, func(request, func() (reply, error)) (reply, error) {
		return reply{}, fmt.Errorf("%w: no right", driver.ErrRights)
	})
	before := r.faulty.count(opGet)
	_, err := r.get(t.Context())
	wantError(t, "a refused Get", err, distlock.ErrRefused)
	if r.faulty.count(opGet) != before+1 {
		t.Error("a refused Get was repeated")
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.faulty.on(opGet, -1, func(request, func() (reply, error)) (reply, error) { cancel(); return reply{}, io.EOF })
	_, err = r.get(ctx)
	wantError(t, "a Get whose ctx has ended", err, context.Canceled)
}

func TestCreate_endedLease(t *testing.T) {
	r := newRig(t, 2*time.Second) // the holder may see the ask at a renewal
	req := &session.CreateRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name}
	r.under(t, func(ctx context.Context) {
		held, err := r.locker.Interrupt(t.Context(), r.id.key())
		if err != nil || !held {
			t.Fatalf("interrupted: %t, %v", held, err)
		}
		<-ctx.Done()
		_, err = r.Create(context.WithoutCancel(ctx), req)
		wantError(t, "Create in an interrupted run", err, distlock.ErrInterrupted)
	})
	_, err := r.get(t.Context())
	wantError(t, "Get", err, ErrNotFound)
}

func TestCreate_exists(t *testing.T) {
	r := newRig(t)
	must(t, r.AppendEvent(t.Context(), r.create(t), event("1", "k", "v")))
	req := &session.CreateRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name, State: map[string]any{"app:x": 1}}
	_, err := r.Create(t.Context(), req)
	wantError(t, "the second Create", err, ErrExists)
	if _, keys := r.stored(t); keys != 0 {
		t.Error("the second Create has written")
	}
	r.wantHistory(t, "1")
	req.SessionID, req.State = "large", map[string]any{"k": strings.Repeat("x", 8<<20)}
	_, err = r.Create(t.Context(), req)
	wantError(t, "a large state", err, ErrTooLarge)
}

// The state of a Create that failed inside Redis is not that of the next one.
func TestCreate_tornStep(t *testing.T) {
	r := newRig(t)
	must(t, r.client.Set(t.Context(), r.key("u:"+r.id.user), "of another program", 0).Err())
	req := &session.CreateRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name, State: map[string]any{"k": 1, "user:u": 2}}
	_, err := r.Create(t.Context(), req)
	wantError(t, "a state that cannot be written", err, distlock.ErrOutcomeUnknown)
	req.SessionID, req.State = "unread", nil
	_, err = r.Create(t.Context(), req)
	wantError(t, "a state that cannot be read", err, distlock.ErrOutcomeUnknown)
	_, err = r.Get(t.Context(), &session.GetRequest{AppName: r.id.app, UserID: r.id.user, SessionID: "unread"})
	wantError(t, "Get", err, distlock.ErrRefused)
	must(t, r.client.Del(t.Context(), r.key("u:"+r.id.user)).Err())
	if _, err := r.create(t).State().Get("k"); err == nil {
		t.Error("the session has the state of the torn one")
	}
}

func TestDelete_inRun(t *testing.T) {
	r := newRig(t)
	r.create(t)
	r.under(t, func(ctx context.Context) {
		h := r.must(t, ctx)
		must(t, r.delete(ctx))
		wantError(t, "the append", r.AppendEvent(ctx, h, event("1", "app:k", "v")), ErrNotFound)
	})
	if n := r.client.Keys(t.Context(), rediskeysOf(r)).Val(); len(n) != 0 {
		t.Errorf("the keys %q are left", n)
	}
	if _, keys := r.stored(t); keys != 0 {
		t.Errorf("%d keys of the state are left", keys)
	}
	must(t, r.delete(t.Context()))
}

func rediskeysOf(r *rig) string { return r.ns + ":{" + r.id.app + "}:*" }

// A late copy of a Create or a Delete would meet the next session of the ID.
func TestDelete_answerLost_notRepeated(t *testing.T) {
	r := newRig(t)
	r.create(t)
	r.faulty.on(opDelete, -1, loseAnswer)
	wantError(t, "the Delete", r.delete(t.Context()), distlock.ErrOutcomeUnknown)
	r.faulty.on(opCreate, -1, loseAnswer)
	_, err := r.Create(t.Context(), &session.CreateRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name})
	wantError(t, "the Create", err, distlock.ErrOutcomeUnknown)
	if d, c := r.faulty.count(opDelete), r.faulty.count(opCreate); d != 1 || c != 2 {
		t.Errorf("%d Deletes and %d Creates were sent", d, c)
	}
	r.faulty.on(opDelete, 2, func(request, func() (reply, error)) (reply, error) {
		return reply{}, fmt.Errorf("%w: not now", driver.ErrTemporary)
	})
	must(t, r.delete(t.Context()))
}

func TestList_order(t *testing.T) {
	r := newRig(t)
	var want []id
	for _, user := range []string{"a", "a b", "a%2Fb", "a-b", "a/b", "ä"} { // in order
		for i := range 40 {
			r.id = id{"app", user, fmt.Sprintf("%02d", i)}
			r.create(t)
			want = append(want, r.id)
		}
	}
	must(t, r.AppendEvent(t.Context(), r.must(t, t.Context()), event("1", "k", "v")))
	list := func(user string) (ids []id, last session.Session) {
		found, err := r.List(t.Context(), &session.ListRequest{AppName: "app", UserID: user})
		must(t, err)
		for _, last = range found.Sessions {
			ids = append(ids, id{last.AppName(), last.UserID(), last.ID()})
		}
		return ids, last
	}
	all, last := list("")
	if !slices.Equal(all, want) {
		t.Errorf("the sessions are %v", all)
	}
	if v, err := last.State().Get("k"); err != nil || v != "v" || last.Events().Len() != 0 {
		t.Errorf("the last session has %v, %v, and %d events", v, err, last.Events().Len())
	}
	must(t, r.AppendEvent(t.Context(), last, event("2")))
	if ofUser, _ := list("a"); !slices.Equal(ofUser, want[:40]) {
		t.Errorf("the sessions of a are %v", ofUser)
	}
}

// A session expires as a whole. A Service without IdleTTL takes the expiry away.
func TestIdleTTL(t *testing.T) {
	r := newRig(t, Options{IdleTTL: time.Hour})
	ctx := t.Context()
	expiries := func() (s, e time.Duration) {
		return r.client.PTTL(ctx, r.key("s:")).Val(), r.client.PTTL(ctx, r.key("e:")).Val()
	}
	h := r.create(t)
	must(t, r.AppendEvent(ctx, h, event("1")))
	if s, e := expiries(); s <= 0 || e < s-time.Millisecond || e > s+time.Second {
		t.Errorf("the header expires in %s, the records in %s", s, e)
	}
	must(t, r.client.PExpire(ctx, r.key("s:"), time.Minute).Err())
	r.must(t, ctx) // without a lease
	if s, _ := expiries(); s > time.Minute {
		t.Error("a read without a lease moves the expiry")
	}
	r.under(t, func(ctx context.Context) { r.must(t, ctx) })
	if s, _ := expiries(); s <= time.Minute {
		t.Error("a read under a lease does not move the expiry")
	}
	if n := r.client.ZCard(ctx, r.key("x")).Val(); n != 1 {
		t.Errorf("%d expiries", n)
	}
	forever, err := NewRedis(r.client, r.locker, &Options{Namespace: r.ns})
	must(t, err)
	found, err := forever.Get(ctx, &session.GetRequest{AppName: r.id.app, UserID: r.id.user, SessionID: r.id.name})
	must(t, err)
	must(t, forever.AppendEvent(ctx, found.Session, event("2")))
	if s, e := expiries(); s != -1 || e != -1 || r.client.ZCard(ctx, r.key("x")).Val() != 0 {
		t.Errorf("the header expires in %s, the records in %s, and the index of expiries is not empty", s, e)
	}
}

// A session expires by time, with all that it has. A Get under a lease and a Stop keep it longer.
func TestIdleTTL_passes(t *testing.T) {
	r := newRig(t, Options{IdleTTL: 2 * time.Second})
	expiry := func() (ms int64) {
		if r.db == nil {
			return r.client.PExpireTime(t.Context(), r.key("s:")).Val().Milliseconds()
		}
		_, err := fmt.Sscan(r.sql(t, "SELECT floor(1000 * extract(epoch FROM expires)) FROM adk_session WHERE namespace = '%s'", r.ns), &ms)
		must(t, err)
		return ms
	}
	must(t, r.AppendEvent(t.Context(), r.create(t), event("1", "k", "v")))
	for _, keep := range []func(){
		func() { r.under(t, func(ctx context.Context) { r.must(t, ctx) }) },
		func() { must(t, r.stop(t.Context())) },
	} {
		first := expiry()
		servers.Await(t, 15*time.Second, "a later expiry", func() bool { keep(); return expiry() > first })
	}
	last := expiry()
	servers.Await(t, 15*time.Second, "the end of the session", func() bool {
		_, err := r.get(t.Context())
		return errors.Is(err, ErrNotFound)
	})
	if early := last - time.Now().UnixMilli(); early > 0 {
		t.Errorf("the session has ended %d ms early", early)
	}
	if n := r.client.Exists(t.Context(), r.key("s:"), r.key("e:")).Val(); n > 0 {
		t.Errorf("the session has left %d keys", n)
	}
	r.id.name = "next"
	r.create(t)
	if r.db != nil {
		if left := r.sql(t, `SELECT (SELECT string_agg(name, ' ') FROM adk_session WHERE namespace = '%[1]s'),
			(SELECT count(*) FROM adk_state WHERE namespace = '%[1]s'),
			(SELECT count(*) FROM adk_event WHERE session NOT IN (SELECT id FROM adk_session))`, r.ns); left != "next|0|0" {
			t.Errorf("sessions, keys and events after a Create: %s", left)
		}
	} else if names := r.client.ZRange(t.Context(), r.key("i"), 0, -1).Val(); !slices.Equal(names, []string{r.id.member()}) {
		t.Errorf("the index has %q", names)
	}
}

// A Create removes names of expired sessions. An app that never lists keeps no names for ever.
func TestCreate_sweeps(t *testing.T) {
	r := newRig(t, Options{IdleTTL: time.Hour})
	ctx, old := t.Context(), []redis.Z{{Score: 1, Member: "u/1"}, {Score: 2, Member: "u/2"}, {Score: 3, Member: r.id.member()}}
	must(t, r.client.ZAdd(ctx, r.key("x"), old...).Err())
	for i := range old {
		old[i].Score = 0
	}
	must(t, r.client.ZAdd(ctx, r.key("i"), old...).Err())
	r.create(t)
	for _, part := range []string{"i", "x"} {
		if names := r.client.ZRange(ctx, r.key(part), 0, -1).Val(); !slices.Equal(names, []string{r.id.member()}) {
			t.Errorf("%s has %q", part, names)
		}
	}
}

// An eviction took the records: the history must not seem short.
func TestGet_evicted_refused(t *testing.T) {
	r := newRig(t)
	must(t, r.AppendEvent(t.Context(), r.create(t), event("1")))
	must(t, r.client.Del(t.Context(), r.key("e:")).Err())
	if r.db != nil {
		r.sql(t, "DELETE FROM adk_event WHERE session = (SELECT id FROM adk_session WHERE namespace = '%s')", r.ns)
	}
	_, err := r.get(t.Context())
	wantError(t, "Get", err, distlock.ErrRefused)
	found, err := r.List(t.Context(), &session.ListRequest{AppName: r.id.app})
	if err != nil || len(found.Sessions) != 1 {
		t.Errorf("List: %v", err)
	}
}

// A session of a List fails. The others are not all.
func TestList_oneFails(t *testing.T) {
	r := newRig(t)
	for _, r.id.name = range []string{"1", "2"} {
		r.create(t)
	}
	must(t, r.client.Del(t.Context(), r.key("s:")).Err())
	must(t, r.client.Set(t.Context(), r.key("s:"), "of another program", 0).Err())
	found, err := r.List(t.Context(), &session.ListRequest{AppName: r.id.app})
	wantError(t, "List", err, distlock.ErrRefused)
	if found != nil {
		t.Errorf("%d sessions", len(found.Sessions))
	}
}

func TestNew_refuses(t *testing.T) {
	r := newRig(t)
	memory, err := memlock.New(nil)
	must(t, err)
	defer memory.Close(t.Context())
	replicas := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadOnly: true})
	defer replicas.Close()
	for name, c := range map[string]struct {
		client redis.UniversalClient
		locker *distlock.Locker
		opts   Options
	}{
		"no client":          {nil, r.locker, Options{}},
		"no Locker":          {r.client, nil, Options{}},
		"a memory Locker":    {r.client, memory, Options{}},
		"reads of replicas":  {replicas, r.locker, Options{}},
		"a brace":            {r.client, r.locker, Options{Namespace: "{"}},
		"a short IdleTTL":    {r.client, r.locker, Options{IdleTTL: time.Millisecond}},
		"a negative size":    {r.client, r.locker, Options{MaxEvent: -1}},
		"an unknown policy":  {r.client, r.locker, Options{Busy: 7}},
		"another's messages": {r.client, r.locker, Options{Busy: lockedmemory.Interrupt}},
	} {
		if _, err := NewRedis(c.client, c.locker, &c.opts); !errors.Is(err, distlock.ErrInvalidOption) || strings.Contains(err.Error(), "memlock") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The table of the reference has all fields, in order, with their defaults.
func TestNew_defaults(t *testing.T) {
	r := newRig(t)
	var got, want []string
	for _, row := range (docs.Place{Page: "docs/reference/configuration.md", Heading: "## adksession.Options"}).Table(t) {
		got = append(got, row[0]+": "+row[1])
	}
	defaults := []any{"adk", "none", r.opts.Wait, "Queue", fmt.Sprint(r.opts.MaxEvent>>20, " MiB")}
	for i, field := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		want = append(want, fmt.Sprint(field.Name, ": ", defaults[i]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q, the code %q", got, want)
	}
}

func TestKey_ofTheLock(t *testing.T) {
	seen := make(map[string]id)
	long := strings.Repeat("ä", 64)
	for _, i := range []id{{"a", "b", "c"}, {"a/b", "c", "d"}, {"a", "b/c", "d"}, {long, long, long}, {long, long, long[2:] + "a"}} {
		key := i.key()
		if len(key) > 1024 || seen[key] != (id{}) {
			t.Errorf("%v and %v have the key %q", i, seen[key], key)
		}
		seen[key] = i
		must(t, i.check())
	}
	for _, bad := range []string{"", "\xff", "a\x00", long + "a"} {
		for _, i := range []id{{bad, "b", "c"}, {"a", bad, "c"}, {"a", "b", bad}} {
			wantError(t, fmt.Sprintf("%q", i), i.check(), distlock.ErrInvalidKey)
		}
	}
}

// ADK's triggers run an error again whose text has "429".
func TestErrors_nameNothing(t *testing.T) {
	for _, cause := range []error{ErrNotFound, ErrExists, ErrStale, ErrAnswered, ErrCodec, ErrTooLarge, distlock.ErrLost,
		distlock.ErrInterrupted, distlock.ErrNotHeld, distlock.ErrInvalidKey, distlock.ErrInvalidOption, distlock.ErrRefused,
		distlock.ErrOutcomeUnknown, distlock.ErrUnavailable, errors.ErrUnsupported, distlock.ErrClosed, context.Canceled, context.DeadlineExceeded,
		&distlock.BusyError{Holder: "host-429"}, io.EOF} {
		err := public(fmt.Errorf("session 429 at 10.0.4.29:429: %w", cause))
		if strings.Contains(err.Error(), "429") || !strings.HasPrefix(err.Error(), "adksession: ") || !errors.Is(err, cause) {
			t.Errorf("%v is shown as %q", cause, err)
		}
	}
	if !errors.Is(ErrStale, distlock.ErrLost) || public(nil) != nil {
		t.Error("ErrStale does not match ErrLost, or nil is an error")
	}
}
