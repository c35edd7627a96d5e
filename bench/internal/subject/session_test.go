package subject_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/bench/internal/wire"
	"github.com/belugalock/belugalock/internal/testservers"
)

func openSession(t *testing.T, name, addr, session string, commands *wire.Counter) subject.Session {
	t.Helper()
	ways, err := subject.OpenSessions(name, subject.Setup{Addr: addr, TTL: 30 * time.Second, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ways.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	s, err := ways.Session(session)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func said(n int) (question, answer subject.Message) {
	return subject.Message{Role: "user", Text: "question " + strconv.Itoa(n)}, subject.Message{Role: "assistant", Text: "answer " + strconv.Itoa(n)}
}

// saveSome makes Saves 0 to n-1, and returns what Load should find then.
func saveSome(ctx context.Context, t *testing.T, s subject.Session, n int) (want []subject.Message) {
	t.Helper()
	for i := range n {
		question, answer := said(i)
		if err := s.Save(ctx, question, answer); err != nil {
			t.Fatal(err)
		}
		want = append(want, question, answer)
	}
	return want
}

func TestSession_loadsWhatWasSaved(t *testing.T) {
	s := testservers.StartRedis(t)
	for name, calls := range map[string]int64{subject.Ours: 2, subject.Stream: 1, subject.List: 1, subject.BsmStream: 3} {
		var commands wire.Counter
		session := openSession(t, name, s.Addr(), "session", &commands)
		want := saveSome(t.Context(), t, session, 1) // scripts are loaded
		before := commands.Commands()
		const n = 10
		for range n {
			question, answer := said(1)
			if err := session.Save(t.Context(), question, answer); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want = append(want, question, answer)
		}
		if sent := commands.Commands() - before; sent != n*calls {
			t.Errorf("%s: %d commands for %d Saves, want %d", name, sent, n, n*calls)
		}
		if got, err := session.Load(t.Context(), ""); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
}

func TestSession_aSaveInATurnIsOneCommand(t *testing.T) {
	s := testservers.StartRedis(t)
	var commands wire.Counter
	session := openSession(t, subject.Ours, s.Addr(), "session", &commands).(subject.TurnTaker)
	err := session.Turn(t.Context(), func(ctx context.Context) error {
		saveSome(ctx, t, session, 1)
		before, trips := commands.Commands(), commands.Trips()
		saveSome(ctx, t, session, 10)
		if sent := commands.Commands() - before; sent != 10 || commands.Trips()-trips != 10 {
			t.Errorf("%d commands in %d round trips for 10 Saves", sent, commands.Trips()-trips)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestExtend_writesWhatTheStoreReads(t *testing.T) {
	s := testservers.StartRedis(t)
	const n = 2345
	if err := subject.Extend(t.Context(), subject.Setup{Addr: s.Addr()}, "long", n, said); err != nil {
		t.Fatal(err)
	}
	session := openSession(t, subject.Ours, s.Addr(), "long", nil)
	var want []subject.Message
	for i := range n {
		question, answer := said(i)
		want = append(want, question, answer)
	}
	want = append(want, saveSome(t.Context(), t, session, 3)...)
	if got, err := session.Load(t.Context(), ""); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d messages, %v, want %d", len(got), err, len(want))
	}
}

func TestOpenSessions_unknownName(t *testing.T) {
	if _, err := subject.OpenSessions("zookeeper", subject.Setup{}); err == nil {
		t.Error("no error")
	}
}
