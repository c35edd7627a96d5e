package crew

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Serve(map[string]Role{
		"echo": func(_ context.Context, lead *Line) error {
			for {
				var text string
				if err := lead.Receive(&text); err != nil {
					return err
				}
				if err := lead.Send(strings.ToUpper(text)); err != nil {
					return err
				}
			}
		},
		"idle": func(ctx context.Context, _ *Line) error {
			<-ctx.Done()
			return nil
		},
		"failing": func(context.Context, *Line) error { return errors.New("as this test wants it") },
	})
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // with the race detector, every process would sleep for a second at its end
	goleak.VerifyTestMain(m)
}

func TestMember_answers(t *testing.T) {
	members, err := StartAll(t.Context(), 2, "echo")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		var answer string
		if err := errors.Join(m.Send("hello"), m.Receive(&answer)); err != nil || answer != "HELLO" {
			t.Errorf("answer %q, %v", answer, err)
		}
	}
	if err := CloseAll(members); err != nil {
		t.Error(err)
	}
}

func TestMember_stopsWhenItIsNotNeeded(t *testing.T) {
	m, err := Start(t.Context(), "idle")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := m.Close(); err != nil || time.Since(began) > grace {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

func TestMember_failureIsReported(t *testing.T) {
	for _, role := range []string{"failing", "unknown"} {
		m, err := Start(t.Context(), role)
		if err != nil {
			t.Fatal(err)
		}
		var never string
		if err := m.Receive(&never); err != io.EOF {
			t.Errorf("%s: received %q, %v", role, never, err)
		}
		if err := m.Close(); err == nil || !strings.Contains(err.Error(), role) {
			t.Errorf("%s: closed with %v", role, err)
		}
	}
}

func TestMember_lateAnswerEndsIt(t *testing.T) {
	m, err := Start(t.Context(), "idle")
	if err != nil {
		t.Fatal(err)
	}
	var never string
	if err := m.ReceiveWithin(10*time.Millisecond, &never); err != ErrLate {
		t.Errorf("received %q, %v", never, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
