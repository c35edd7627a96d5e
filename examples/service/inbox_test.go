package main

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// The command of the page. An instance dies in its answer, and its clients do not come back. The next
// instance answers the accepted messages once.
func TestService_inbox_deadInstance(t *testing.T) {
	lock := servers.SharedRedis(t).URL()
	flags := flagsWith(t, "-inbox", "-lock", lock, "-ttl", "1s")
	p, at1 := start(t, lock, "500ms", flags...)
	got := begin(t, at1, "1")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	<-got
	_, at2 := start(t, lock, "1ms", flags...)
	servers.Await(t, 30*time.Second, "an answer", func() bool { return len(history(t, at2)) == 2 })
	stored := history(t, at2)[1]
	if answer, status, err := ask(t, at2, "1", "Hello", nil); err != nil || status != http.StatusOK || answer != stored {
		t.Errorf("the repeated message: %v, status %d, %v; want %v", answer, status, err, stored)
	}
	if all := history(t, at2); len(all) != 2 {
		t.Errorf("the history is %v", all)
	}
}

// Three messages that come together, at two instances, have one answer.
func TestService_inbox_together(t *testing.T) {
	lock := servers.SharedRedis(t).URL()
	flags := flagsWith(t, "-inbox", "-lock", lock, "-quiet", "1s")
	_, at1 := start(t, lock, "1ms", flags...)
	_, at2 := start(t, lock, "1ms", flags...)
	var answers [3]Message
	var clients sync.WaitGroup
	for i, at := range []string{at1, at2, at1} {
		clients.Go(func() { answers[i], _, _ = ask(t, at, string(rune('a'+i)), "Hello", nil) })
	}
	clients.Wait()
	if all := history(t, at1); len(all) != 4 || answers[0] != all[3] || answers[1] != all[3] || answers[2] != all[3] {
		t.Errorf("the history is %v, and the clients got %v", all, answers)
	}
}
