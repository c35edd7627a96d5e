package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/genai"

	"github.com/belugalock/belugalock/examples/internal/instances"
)

// tour is what the clients of a user get.
func tour(url string) []instances.Step {
	u := user{url, rand.Text()}
	return []instances.Step{
		{Name: "at once", Play: u.atOnce},
		{Name: "streamed", Play: u.streamed},
		{Name: "stopped", Play: u.stopped},
		{Name: "killed", Play: u.killed},
		{Name: "state", Play: u.state},
		{Name: "unlocked", Play: u.unlocked},
	}
}

func (u user) atOnce(ctx context.Context) (string, error) {
	one, two, err := u.pair(ctx, "/run", "1", "1")
	text := fmt.Sprintf("instances %s and %s answer two messages, in order", one.Instance, two.Instance)
	if err == nil && one.Instance == two.Instance {
		err = errors.New(text)
	}
	return text, cmp.Or(err, u.stores(ctx, "1", 3, 7))
}

func (u user) streamed(ctx context.Context) (string, error) {
	err := u.create(ctx, "2")
	r, err2 := u.send(ctx, "/run_sse", "2", "Where is order 3?", nil)
	text, err3 := r.Streamed()
	return text, cmp.Or(err, err2, err3, u.stores(ctx, "2", 3))
}

func (u user) stopped(ctx context.Context) (string, error) {
	of, by, err := u.cut(ctx, "7", func(string) string { return u.path("7") + "/stop" })
	text := fmt.Sprintf("instance %s answers, %s stops it, and no text is stored", of, by)
	if err == nil || of == by || !strings.Contains(err.Error(), "interrupted") {
		return "", fmt.Errorf("instance %s stops %s: %v", by, of, err)
	}
	_, err = u.send(ctx, "/run", "7", "And now?", nil)
	return text, cmp.Or(err, u.stores(ctx, "7", 4))
}

// killed sends another message, because ADK has stored the first one, and the result of the tool.
func (u user) killed(ctx context.Context) (string, error) {
	victim, _, err := u.cut(ctx, "3", func(instance string) string { return "/instances/" + instance + "/kill" })
	if err == nil {
		return "", fmt.Errorf("instance %s was killed, and its stream has an end", victim)
	}
	r, err := u.send(ctx, "/run", "3", "And now?", nil)
	text := fmt.Sprintf("instance %s, and %s answers once, after %.1f s", victim, r.Instance, r.Took.Seconds())
	return text, cmp.Or(err, u.stores(ctx, "3", 4))
}

func (u user) state(ctx context.Context) (string, error) {
	_, _, err := u.pair(ctx, "/run", "4", "5")
	r, err2 := u.do(ctx, http.MethodGet, u.path("5"))
	if !strings.Contains(r.Body, `"user:order_1":`) || !strings.Contains(r.Body, `"user:order_2":`) {
		err = errors.Join(err, err2, errors.New("the session is "+r.Body))
	}
	return "the user's state has the keys of two sessions, used at once", err
}

func (u user) unlocked(ctx context.Context) (string, error) {
	one, two, err := u.pair(ctx, "/unlocked/run", "6", "6")
	if one.Status+two.Status != http.StatusOK+http.StatusInternalServerError {
		return "", fmt.Errorf("status %d and %d: %v", one.Status, two.Status, err)
	}
	if err = u.stores(ctx, "6", 3); err != nil { // the question of the refused run is stored, too
		err = u.stores(ctx, "6", 4)
	}
	return "of two messages without LockREST, one is answered, one is refused", err
}

// user is a client.
type user struct{ url, id string }

func (u user) path(session string) string {
	return "/apps/" + app + "/users/" + u.id + "/sessions/" + session
}

func (u user) do(ctx context.Context, method, path string) (instances.Reply, error) {
	return instances.Send(ctx, instances.Request{Method: method, URL: u.url + path})
}

func (u user) create(ctx context.Context, sessions ...string) error {
	for _, session := range slices.Compact(sessions) {
		if _, err := u.do(ctx, http.MethodPost, u.path(session)); err != nil {
			return err
		}
	}
	return nil
}

// pair sends two messages at once, to one session or to two.
func (u user) pair(ctx context.Context, path, first, second string) (one, two instances.Reply, err error) {
	if err := u.create(ctx, first, second); err != nil {
		return one, two, err
	}
	var other error
	var both sync.WaitGroup
	both.Go(func() { one, err = u.send(ctx, path, first, "Where is order 1?", nil) })
	both.Go(func() { two, other = u.send(ctx, path, second, "Where is order 2?", nil) })
	both.Wait()
	return one, two, errors.Join(err, other)
}

// cut sends a message, and a POST in the middle of the answer. It returns the instances of both.
func (u user) cut(ctx context.Context, session string, path func(instance string) string,
) (of, by string, err error) {
	if err := u.create(ctx, session); err != nil {
		return "", "", err
	}
	r, err := u.send(ctx, "/run_sse", session, "Where is order 4?", func(instance string) error {
		r, err := u.do(ctx, http.MethodPost, path(instance))
		by = r.Instance
		return err
	})
	return r.Instance, by, err
}

func (u user) send(ctx context.Context, path, session, text string, middle func(instance string) error,
) (instances.Reply, error) {
	body, _ := json.Marshal(map[string]any{ // has no error
		"appName": app, "userId": u.id, "sessionId": session, "streaming": path == "/run_sse",
		"newMessage": genai.NewContentFromText(text, genai.RoleUser),
	})
	return instances.Send(ctx, instances.Request{
		Method: http.MethodPost, URL: u.url + path, Body: string(body), Middle: middle,
		Event: func(name, data string) (bool, error) {
			if name == "error" {
				return false, errors.New(data)
			}
			var e struct{ Partial bool }
			err := json.Unmarshal([]byte(data), &e)
			return e.Partial, err
		},
	})
}

var answer = regexp.MustCompile(`I saw (\d+) events`)

// stores checks a stored session, with answers after so many events, the last one at its end. Each answer saw
// just the events before it, so none is missing, doubled or out of order.
func (u user) stores(ctx context.Context, session string, after ...int) error {
	r, err := u.do(ctx, http.MethodGet, u.path(session))
	var s struct {
		Events []struct {
			ID      string
			Content json.RawMessage
		}
	}
	err = cmp.Or(err, json.Unmarshal([]byte(r.Body), &s))
	ids, at, saw := map[string]bool{}, []int(nil), []int(nil)
	for i, e := range s.Events {
		ids[e.ID] = true
		if found := answer.FindSubmatch(e.Content); found != nil {
			n, _ := strconv.Atoi(string(found[1]))
			at, saw = append(at, i), append(saw, n)
		}
	}
	n := after[len(after)-1] + 1
	right := slices.Equal(at, after) && slices.Equal(saw, after) && len(ids) == n && len(s.Events) == n
	if err == nil && !right {
		err = fmt.Errorf("answers after %d events saw %d of %d, with %d IDs", at, saw, len(s.Events), len(ids))
	}
	return err
}
