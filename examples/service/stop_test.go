package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// reply is what a client got at last.
type reply struct {
	answer Message
	status int
}

// begin sends a message, and returns after the first chunk of its answer.
func begin(t *testing.T, address, id string) <-chan reply {
	got, begun := make(chan reply, 1), make(chan struct{})
	first := sync.OnceFunc(func() { close(begun) })
	go func() {
		answer, status, _ := ask(t, address, id, "Hello", func() (leaves bool) { first(); return false })
		first()
		got <- reply{answer, status}
	}()
	<-begun
	return got
}

// press presses the Stop button of message 1, by the command of the page.
func press(t *testing.T, address string) (stored bool) {
	t.Helper()
	var said struct{ Stored bool }
	for _, c := range docs.Commands(t, "curl", "-X", "POST") {
		line := strings.ReplaceAll(strings.Join(c.Words[1:], "\n"), "localhost:8080", address)
		out, err := exec.CommandContext(t.Context(), "curl", append(strings.Split(line, "\n"), "-s")...).Output()
		if err := errors.Join(err, json.Unmarshal(out, &said)); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
	}
	return said.Stored
}

// A Stop at another instance keeps the words until then.
func TestService_stopElsewhere_wordsAreKept(t *testing.T) {
	lock := servers.SharedRedis(t).URL()
	_, at1 := start(t, lock, "500ms", "-ttl", "30s", "-keep", "30s")
	_, at2 := start(t, lock, "1ms", "-ttl", "30s", "-keep", "30s")
	got := begin(t, at1, "1")
	if !press(t, at2) {
		t.Error("Stop says that nothing is stored")
	}
	if r := <-got; r.status != http.StatusOK || !r.answer.Cut || !strings.HasPrefix(r.answer.Text, "I") {
		t.Errorf("the client got %+v", r)
	}
	if all := history(t, at2); len(all) != 2 || !all[1].Cut {
		t.Errorf("the history is %v", all)
	}
}

// With -keep 0, the words go, also those of an instance that is paused during the Stop.
func TestService_stopElsewhere_keepsNothing(t *testing.T) {
	lock := servers.SharedRedis(t).URL()
	p, at1 := start(t, lock, "500ms", "-ttl", "30s", "-keep", "0")
	_, at2 := start(t, lock, "1ms", "-ttl", "30s", "-keep", "0")
	got := begin(t, at1, "1")
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if press(t, at2) {
		t.Error("Stop says that an answer is stored")
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.status != http.StatusConflict {
		t.Errorf("the client got %+v, want 409", r)
	}
	if _, status, err := ask(t, at2, "1", "Hello", nil); status != http.StatusConflict {
		t.Errorf("the repeated message: status %d, %v, want 409", status, err)
	}
	if all := history(t, at2); len(all) != 0 {
		t.Errorf("the history is %v", all)
	}
}

// flagsWith returns the flags of the command of the page that has a flag, and then others.
func flagsWith(t *testing.T, flag string, more ...string) (flags []string) {
	for _, c := range docs.Commands(t, "go", "run", "./examples/service") {
		if c.Page == "docs/howto/stop.md" && slices.Contains(c.Words, flag) {
			flags = append(c.Words[3:], more...)
		}
	}
	return flags
}

// The command of the page. The instance that answers is killed, and two messages come: the newest is
// answered, and the other ones never.
func TestService_newestMessageInterrupts(t *testing.T) {
	lock := servers.SharedRedis(t).URL()
	flags := flagsWith(t, "-busy", "-lock", lock, "-spare", "0", "-ttl", "4s")
	p, at1 := start(t, lock, "500ms", flags...)
	_, at2 := start(t, lock, "1ms", flags...)
	_, at3 := start(t, lock, "1ms", flags...)
	got := begin(t, at1, "a")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	<-got
	older := make(chan int, 1)
	go func() {
		_, status, _ := ask(t, at2, "b", "Never mind", nil)
		older <- status
	}()
	awaitHolder(t, looker(t, lock), 1)
	answer, status, err := ask(t, at3, "c", "Wait", nil)
	if want := "I have read 1 messages. The last one says: Wait"; answer.Text != want || status != http.StatusOK {
		t.Errorf("the newest message: %v, status %d, %v", answer, status, err)
	}
	if status := <-older; status != http.StatusConflict {
		t.Errorf("the older message: status %d, want 409", status)
	}
	if _, status, err := ask(t, at3, "a", "Hello", nil); status != http.StatusConflict {
		t.Errorf("the interrupted message: status %d, %v, want 409", status, err)
	}
}
