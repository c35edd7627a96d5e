package belugarunner

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/migrated"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/services"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// newService makes a service as another instance does: two on one URL share the sessions.
func newService(t testing.TB, url string) testService {
	t.Helper()
	s := must2(services.Enter(url))
	t.Cleanup(func() {
		must(t, <-s.Leave())
	})
	locker := must2(s.Locker(distlock.Options{TTL: 5 * time.Second, Wait: 10 * time.Second, Holder: rand.Text()}))
	d := must2(s.Sessions(storedriver.Retention{Namespace: "run"}, true))
	service := must2(newSessionService(d, locker, 0))
	return testService{service, d}
}

type testService struct {
	*sessionService
	driver storedriver.Driver
}

// withSession makes a service with a session "id", and returns a context of this session.
func withSession(t testing.TB, url string) (testService, context.Context) {
	t.Helper()
	s, ctx := newService(t, url), inSession(t, "id")
	must(t, second(s.Create(ctx, "agent")))
	return s, ctx
}

// under runs fn with the lease of a session, as a run does.
func (s testService) under(t testing.TB, ctx context.Context, id string, fn func(ctx context.Context)) {
	t.Helper()
	key := must2(belugamemory.SessionKey(core.WithSessionID(ctx, id)))
	must(t, s.locker.Do(ctx, key, func(ctx context.Context) error { fn(ctx); return nil }))
}

// update changes a session under its lease.
func (s testService) update(t testing.TB, ctx context.Context, id string, change func(session *runtime.Session)) {
	t.Helper()
	s.under(t, ctx, id, func(ctx context.Context) {
		session := s.read(t, ctx, id)
		change(session)
		must(t, s.Update(ctx, session))
	})
}

func (s testService) read(t testing.TB, ctx context.Context, id string) *runtime.Session {
	t.Helper()
	session := must2(s.Get(ctx, id))
	return session
}

// appends adds a turn.
func appends(n int) func(*runtime.Session) {
	return func(s *runtime.Session) { s.Turns = append(s.Turns, turn(n)) }
}

// onServices runs a test on Beluga's service and on this one, over each backend.
func onServices(t *testing.T, test func(t *testing.T, s runtime.SessionService, in func(context.Context, string, func(context.Context)))) {
	t.Run("Beluga's", func(t *testing.T) {
		test(t, runtime.NewInMemorySessionService(), func(ctx context.Context, _ string, fn func(context.Context)) { fn(ctx) })
	})
	migrated.OnEach(t, func(t *testing.T, url string) {
		s := newService(t, url)
		test(t, s, func(ctx context.Context, id string, fn func(context.Context)) { s.under(t, ctx, id, fn) })
	})
}

func turn(n int) schema.Turn {
	return schema.Turn{Input: schema.NewHumanMessage(fmt.Sprint("q ", n)), Output: schema.NewAIMessage(fmt.Sprint("a ", n)),
		Timestamp: time.Date(2026, 11, 1, 0, 0, n, 7, time.UTC)}
}

func same(t testing.TB, got, want *runtime.Session) {
	t.Helper()
	g, w := *got, *want
	g.UpdatedAt, w.UpdatedAt = time.Time{}, time.Time{}
	if len(g.Turns)+len(w.Turns) == 0 {
		g.Turns, w.Turns = nil, nil
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("the session is\n%+v\nwant\n%+v", g, w)
	}
	if got.UpdatedAt.Before(want.CreatedAt) {
		t.Errorf("UpdatedAt is %s", got.UpdatedAt)
	}
}

// The contract that both services keep.
func TestSessionService_O_keepsWhatUpdateGave(t *testing.T) {
	onServices(t, func(t *testing.T, s runtime.SessionService, in func(context.Context, string, func(context.Context))) {
		ctx := t.Context()
		created := must2(s.Create(ctx, "agent"))
		if created.ID == "" || created.AgentID != "agent" || created.State == nil || created.CreatedAt.IsZero() {
			t.Errorf("created %+v", created)
		}
		id := created.ID
		update := func(change func(session *runtime.Session)) {
			t.Helper()
			in(ctx, id, func(ctx context.Context) {
				session := must2(s.Get(ctx, id))
				change(session)
				want := *session
				must(t, s.Update(ctx, session))
				got := must2(s.Get(ctx, id))
				same(t, got, &want)
				if got == session {
					t.Error("Get returned the caller's session")
				}
			})
		}
		update(func(*runtime.Session) {})
		update(func(s *runtime.Session) { s.Turns = append(s.Turns, turn(1), turn(2)) })
		update(appends(3))
		update(func(s *runtime.Session) {
			s.State = map[string]any{"n": int64(1) << 60, "list": []any{1.5, "x", nil}, "at": time.Unix(7, 0).UTC()}
			s.AgentID = "other"
			s.ExpiresAt = time.Now().Add(time.Hour).UTC()
		})
		update(func(s *runtime.Session) { s.Turns[1].Metadata = map[string]any{"liked": true} })
		update(func(s *runtime.Session) { s.Turns[0].Output = nil; s.Turns[2].Input = nil })
		update(func(s *runtime.Session) { s.Turns = append(s.Turns[:1], s.Turns[2:]...) })
		update(func(s *runtime.Session) { s.Turns, s.State = nil, nil })
		update(func(s *runtime.Session) {
			for n := range 300 {
				s.Turns = append(s.Turns, turn(n))
			}
		})
		update(func(s *runtime.Session) { s.ExpiresAt = time.Time{} })
		must(t, s.Delete(ctx, id))
		isNotFound(t, second(s.Get(ctx, id)))
		isNotFound(t, s.Delete(ctx, id))
	})
}

func isNotFound(t testing.TB, err error) {
	t.Helper()
	if coded := (*core.Error)(nil); !errors.As(err, &coded) || coded.Code != core.ErrNotFound {
		t.Errorf("error %v, want the code %s", err, core.ErrNotFound)
	}
}

func TestSessionService_expired_notFound(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		s := newService(t, url)
		ctx := inSession(t, "a:b")
		session := must2(s.Create(ctx, "agent"))
		if session.ID != "a:b" {
			t.Errorf("the ID is %q", session.ID)
		}
		mustHaveCode(t, second(s.Create(ctx, "agent")), core.ErrInvalidInput, distlock.ErrInvalidOption)
		s.update(t, ctx, "a:b", func(s *runtime.Session) {
			s.Turns, s.ExpiresAt = append(s.Turns, turn(1)), time.Now().Add(-time.Millisecond)
		})
		isNotFound(t, second(s.Get(ctx, "a:b")))
		session = must2(s.Create(ctx, "next"))
		got := s.read(t, ctx, "a:b")
		same(t, got, session)
	})
}

// An Update is refused, and writes nothing, unless its session was read last under the same lease.
func TestSessionService_S1_outdatedUpdate_refused(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		s, other := newService(t, url), newService(t, url)
		ctx, id := inSession(t, "id"), "id"
		created := must2(s.Create(ctx, "agent"))
		refused := func(ctx context.Context, session *runtime.Session, sentinel error) {
			t.Helper()
			before := other.read(t, ctx, id)
			session.Turns = append(session.Turns, turn(99))
			code := core.ErrInvalidInput
			if sentinel == distlock.ErrLost {
				code = belugamemory.ErrLockLost
			}
			mustHaveCode(t, s.Update(ctx, session), code, sentinel)
			after := other.read(t, ctx, id)
			same(t, after, before)
		}
		refused(ctx, created, distlock.ErrNotHeld)
		read := s.read(t, ctx, id)
		refused(ctx, read, distlock.ErrNotHeld)
		s.under(t, ctx, id, func(ctx context.Context) {
			refused(ctx, created, distlock.ErrLost)
			refused(ctx, read, distlock.ErrLost)
			first := s.read(t, ctx, id)
			second := s.read(t, ctx, id)
			clone := *second
			refused(ctx, &clone, distlock.ErrInvalidOption)
			first.Turns = append(first.Turns, turn(1))
			must(t, s.Update(ctx, first))
			refused(ctx, second, distlock.ErrLost)
			twin := must2(newSessionService(s.driver, s.locker, 0))
			first.Turns = append(first.Turns, turn(2))
			must(t, s.Update(ctx, first))
			session := must2(twin.Get(ctx, id))
			must(t, twin.Update(ctx, session))
			refused(ctx, first, distlock.ErrLost)
			first = s.read(t, ctx, id)
			first.TenantID = "another"
			refused(ctx, first, distlock.ErrInvalidOption)
			first.TenantID, first.ID = "", "another"
			mustHaveCode(t, s.Update(ctx, first), core.ErrInvalidInput, distlock.ErrNotHeld)
			read = second
		})
		other.update(t, ctx, id, appends(3))
		s.under(t, ctx, id, func(ctx context.Context) { refused(ctx, read, distlock.ErrLost) })
		got := s.read(t, ctx, id)
		if want := []schema.Turn{turn(1), turn(2), turn(3)}; !reflect.DeepEqual(got.Turns, want) {
			t.Errorf("the turns are %v", got.Turns)
		}
		mustHaveCode(t, s.Update(ctx, nil), core.ErrInvalidInput, distlock.ErrInvalidOption)
		mustHaveCode(t, second(s.Get(ctx, "")), core.ErrInvalidInput, distlock.ErrInvalidKey)
	})
}

func TestSessionService_tenants_seeTheirOwn(t *testing.T) {
	migrated.OnEach(t, func(t *testing.T, url string) {
		s := newService(t, url)
		ctx := core.WithTenant(inSession(t, "id"), "one")
		session := must2(s.Create(ctx, "agent"))
		if session.TenantID != "one" {
			t.Errorf("the tenant is %q", session.TenantID)
		}
		another := core.WithTenant(t.Context(), "two")
		isNotFound(t, second(s.Get(another, "id")))
		isNotFound(t, s.Delete(another, "id"))
		s.under(t, another, "id", func(ctx context.Context) {
			mustHaveCode(t, s.Update(ctx, session), core.ErrInvalidInput, distlock.ErrInvalidOption)
		})
		must(t, second(s.Get(ctx, "id")))
	})
}

// A value that the codec cannot store leaves the session as it was.
func TestSessionService_codec_refused(t *testing.T) {
	s, ctx := withSession(t, "mem://")
	circle := map[string]any{}
	circle["self"] = circle
	for name, change := range map[string]func(session *runtime.Session){
		"state":  func(s *runtime.Session) { s.State["f"] = func() {} },
		"circle": func(s *runtime.Session) { s.State = circle },
		"turn":   func(s *runtime.Session) { s.Turns = append(s.Turns, schema.Turn{Metadata: circle}) },
		"turn metadata": func(s *runtime.Session) {
			s.Turns = append(s.Turns, schema.Turn{Metadata: map[string]any{"c": make(chan int)}})
		},
		"year": func(s *runtime.Session) {
			s.Turns = append(s.Turns, schema.Turn{Timestamp: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
		},
		"agent": func(s *runtime.Session) { s.AgentID = "\xff" },
	} {
		s.under(t, ctx, "id", func(ctx context.Context) {
			session := s.read(t, ctx, "id")
			change(session)
			err := s.Update(ctx, session)
			mustHaveCode(t, err, core.ErrInvalidInput, sessionstore.ErrCodec)
			if !strings.Contains(err.Error(), "nothing was written") {
				t.Errorf("%s: %v", name, err)
			}
		})
		s.update(t, ctx, "id", appends(1))
	}
	got := s.read(t, ctx, "id")
	if len(got.Turns) != 6 || len(got.State) != 0 {
		t.Errorf("%+v", got)
	}
}

// A newer version of this package has stored the session.
func TestSessionService_futureVersion_refused(t *testing.T) {
	s := newService(t, "mem://")
	ctx := inSession(t, "id")
	head, _, _, err := encodeSession(&runtime.Session{})
	must(t, err)
	must(t, s.locked.Append(ctx, bytes.Replace(head, []byte(`"v":1`), []byte(`"v":3`), 1)))
	mustHaveCode(t, second(s.Get(ctx, "id")), core.ErrInvalidInput, sessionstore.ErrCodec)
	mustHaveCode(t, second(s.Create(ctx, "agent")), core.ErrInvalidInput, sessionstore.ErrCodec)
	if stored, err := s.locked.Last(ctx, 9); err != nil || len(stored) != 1 {
		t.Errorf("%d updates are stored: %v", len(stored), err)
	}
}

// During an update, an instance of the next version has stored a turn. This instance adds one, and
// keeps what it cannot read.
func TestSessionService_O_nextVersion_isKept(t *testing.T) {
	const head = `{"v":1,"state":{},"created_at":"2026-11-01T00:00:00 0","updated_at":"2026-11-01T00:00:00 0",` +
		`"expires_at":"2999-11-01T00:00:00 0"}`
	const facts = `{"at":"2026-11-01T00:00:00 0"}`
	for name, text := range map[string]string{
		"an input":  head + "\n" + facts + "\n" + `{"v":2,"role":"human","parts":[{"type":"hologram"}]}` + "\n",
		"an output": head + "\n" + facts + "\n\n" + `{"v":2,"role":"ai","seal":"x"}`,
		"its facts": strings.Replace(head, `"v":1`, `"v":2`, 1) + "\n" + `{"at":"2026-11-01T00:00:00 0","mood":"x"}` + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, "mem://")
			ctx := inSession(t, "id")
			must(t, s.locked.Append(ctx, []byte(text)))
			s.update(t, ctx, "id", appends(1))
			stored := must2(s.locked.Last(ctx, 9))
			if len(stored) != 2 || string(stored[0].Input()) != text {
				t.Errorf("%d updates are stored, the first is\n%s\nwant\n%s", len(stored), stored[0].Input(), text)
			}
		})
	}
}

// A history of several pieces that was changed at its beginning.
func TestSessionService_O_manyTurns_replaced(t *testing.T) {
	s, ctx := withSession(t, migrated.EmptyRedis(t))
	s.under(t, ctx, "id", func(ctx context.Context) {
		session := s.read(t, ctx, "id")
		for n := range 5 {
			long := turn(n)
			long.Input = schema.NewHumanMessage(strings.Repeat("x", maxPiece/2))
			session.Turns = append(session.Turns, long)
			must(t, s.Update(ctx, session))
		}
		session.Turns[0] = turn(0)
		must(t, s.Update(ctx, session))
		got := s.read(t, ctx, "id")
		session.UpdatedAt = got.UpdatedAt
		same(t, got, session)
	})
}

// After a definite failure the same Update can be repeated.
func TestSessionService_notWritten_repeatable(t *testing.T) {
	server := servers.StartRedis(t)
	s, ctx := withSession(t, server.URL())
	s.under(t, ctx, "id", func(ctx context.Context) {
		session := s.read(t, ctx, "id")
		session.Turns = []schema.Turn{turn(1)}
		maxMemory := func(bytes string) {
			must(t, second(server.Do("CONFIG", "SET", "maxmemory", bytes)))
		}
		maxMemory("1")
		mustHaveCode(t, s.Update(ctx, session), core.ErrProviderDown, distlock.ErrRefused)
		maxMemory("0")
		must(t, s.Update(ctx, session))
	})
	got := s.read(t, ctx, "id")
	if !reflect.DeepEqual(got.Turns, []schema.Turn{turn(1)}) {
		t.Errorf("the turns are %v", got.Turns)
	}
}
