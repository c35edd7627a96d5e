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
	"google.golang.org/adk/v2/session"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
)

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
	if n := r.client.Keys(t.Context(), r.key("*")).Val(); len(n) != 0 {
		t.Errorf("the keys %q are left", n)
	}
	if _, keys := r.stored(t); keys != 0 {
		t.Errorf("%d keys of the state are left", keys)
	}
	must(t, r.delete(t.Context()))
}

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
	r.faulty.on(opDelete, 2, func(request, func() (reply, error)) (reply, error) { return reply{}, driver.ErrTemporary })
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
