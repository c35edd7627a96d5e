package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

func start(t *testing.T, url, thinking string) (p *recipetest.Process, conversation string) {
	t.Helper()
	p = recipetest.Start(t, "-lock", url, "-listen", "127.0.0.1:0", "-ttl", "1s", "-thinking", thinking)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return p, p.Await("listening on ") + "/conversations/42"
}

func post(url, key, text string) (messages []Message, err error) {
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Idempotency-Key", key)
	return receive(http.DefaultClient.Do(request))
}

func receive(response *http.Response, err error) (messages []Message, _ error) {
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", response.Status)
	}
	return messages, json.NewDecoder(response.Body).Decode(&messages)
}

// Two instances get messages of one conversation at once. Each model call sees all earlier exchanges.
func TestChat_twoInstances_oneTurnAtATime(t *testing.T) {
	url := servers.SharedRedis(t).URL()
	_, first := start(t, url, "20ms")
	_, second := start(t, url, "20ms")
	const messages = 20
	var clients sync.WaitGroup
	for i := range messages {
		at := []string{first, second}[i%2]
		clients.Go(func() {
			if _, err := post(at, fmt.Sprint(i), fmt.Sprintf("Message %d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	judge(t, second, messages)
}

// An instance is killed while its model works. The client repeats the message at the other instance.
func TestChat_killedInstance_repeatedMessage(t *testing.T) {
	db := servers.SharedRedis(t)
	slow, first := start(t, db.URL(), "1m")
	_, second := start(t, db.URL(), "1ms")
	if _, err := post(second, "a", "Hello"); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := post(first, "b", "Are you there?")
		failed <- err
	}()
	servers.Await(t, 30*time.Second, "the first instance has the lock", func() bool {
		held, err := db.Do("GETRANGE", "chat:{42}:lock", "0", "-1")
		return err == nil && strings.Contains(held, fmt.Sprint(":", slow.Pid))
	})
	killed := time.Now()
	if err := slow.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Fatal("a killed instance answers")
	}
	for range 2 { // the second time, the answer comes from the store
		answer, err := post(second, "b", "Are you there?")
		if err != nil || len(answer) != 1 || answer[0].Text != `Answer 2 to "Are you there?"` {
			t.Errorf("%v, %v", answer, err)
		}
	}
	if took := time.Since(killed); took > 20*time.Second { // of a machine that is busy; the default TTL is 30 s
		t.Errorf("the answer took %s, with a TTL of 1 s", took)
	}
	judge(t, second, 2)
}

// The lock is lost while the model works. The model's work ends, and the client repeats the message.
func TestChat_lostLock_modelAborted(t *testing.T) {
	db := servers.SharedRedis(t)
	p, first := start(t, db.URL(), "10m")
	failed := make(chan error, 1)
	go func() {
		_, err := post(first, "a", "Hello")
		failed <- err
	}()
	servers.Await(t, 30*time.Second, "the instance has the lock", func() bool {
		held, err := db.Do("GETRANGE", "chat:{42}:lock", "0", "-1")
		return err == nil && strings.Contains(held, fmt.Sprint(":", p.Pid))
	})
	if _, err := db.Do("FLUSHDB"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("%v, want the status 503", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the model works on without the lock")
	}
}

func TestChat_badRequest_status400(t *testing.T) {
	_, conversation := start(t, servers.SharedRedis(t).URL(), "1ms")
	for what, at := range map[string][3]string{
		"no key": {conversation, ""}, "a key that is too long": {conversation, strings.Repeat("k", 10_000)},
		"a conversation that is too long": {conversation + strings.Repeat("2", 100_000), "a"},
		"a text that is not UTF-8":        {conversation, "a", "\xff"},
	} {
		if _, err := post(at[0], at[1], cmp.Or(at[2], "Hello")); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%s: %v, want the status 400", what, err)
		}
	}
}

// A client gives up before the answer, and repeats the message. The model's work is not lost.
func TestChat_impatientClient_answeredLater(t *testing.T) {
	_, conversation := start(t, servers.SharedRedis(t).URL(), "2s")
	impatient := http.Client{Timeout: time.Second}
	tries := 0
	servers.Await(t, 30*time.Second, "the message is answered", func() bool {
		tries++
		request, err := http.NewRequest(http.MethodPost, conversation, strings.NewReader("Hello"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Idempotency-Key", "a")
		_, err = receive(impatient.Do(request))
		return err == nil
	})
	if tries < 2 {
		t.Error("the first try is answered before the model")
	}
	judge(t, conversation, 1)
}

func TestChat_keyOfOtherMessage_status409(t *testing.T) {
	_, conversation := start(t, servers.SharedRedis(t).URL(), "1ms")
	if _, err := post(conversation, "a", "Hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := post(conversation, "a", "Goodbye"); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("%v, want the status 409", err)
	}
	judge(t, conversation, 1)
}

func TestReply_statusSaysWhetherToRepeat(t *testing.T) {
	for err, want := range map[error]int{
		distlock.ErrInvalidKey: 400, lockedmemory.ErrInvalidID: 400, sessionstore.ErrTooLarge: 400, sessionstore.ErrCodec: 400,
		sessionstore.ErrIDConflict: 409, lockedmemory.ErrAnswerGone: 409,
		distlock.ErrInvalidOption: 500, errors.ErrUnsupported: 500, sessionstore.ErrBroken: 500,
		distlock.ErrUnavailable: 503, distlock.ErrLost: 503, distlock.ErrOutcomeUnknown: 503, distlock.ErrNotAcquired: 503,
	} {
		w := httptest.NewRecorder()
		if reply(w, nil, fmt.Errorf("turn: %w", err)); w.Code != want {
			t.Errorf("%v: status %d, want %d", err, w.Code, want)
		}
	}
}

// judge wants each message once, with its answer after it, and answer n at place n.
func judge(t *testing.T, conversation string, exchanges int) {
	t.Helper()
	history, err := receive(http.Get(conversation))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(history); i += 2 {
		question, answer := history[i], history[i+1]
		want := fmt.Sprintf("Answer %d to %q", i/2+1, question.Text)
		if question.Role != "user" || seen[question.Text] || answer.Text != want {
			t.Errorf("exchange %d: %v %v", i/2+1, question, answer)
		}
		seen[question.Text] = true
	}
	if len(history) != 2*exchanges {
		t.Errorf("%d messages in the history, want %d", len(history), 2*exchanges)
	}
}
