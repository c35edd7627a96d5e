package adksession

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
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
	r.faulty.on(opGet, -1, func(request, func() (reply, error)) (reply, error) { return reply{}, driver.ErrRights })
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
