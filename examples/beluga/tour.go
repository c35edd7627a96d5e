package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/belugalock/belugalock/examples/internal/instances"
)

// tour is what the client of a chat gets.
func tour(url string) []instances.Step {
	c := client{url, "/chats/" + rand.Text()}
	return []instances.Step{
		{Name: "streamed", Play: c.streamed},
		{Name: "once", Play: c.once},
		{Name: "left", Play: c.left},
		{Name: "stopped", Play: c.stopped},
		{Name: "killed", Play: c.killed},
	}
}

func (c client) streamed(ctx context.Context) (string, error) {
	r, err := c.answer(ctx, "1", "Where is order 1?", nil)
	if err == nil && r.Type != "done" {
		err = errors.New("the stream ends with " + r.Type)
	}
	text, err2 := r.Streamed()
	return text, cmp.Or(err, err2)
}

// once sends the message of streamed again.
func (c client) once(ctx context.Context) (string, error) {
	r, err := c.answer(ctx, "1", "Where is order 1?", nil)
	if err == nil && r.Pieces > 1 {
		err = errors.New("the agent has answered the message again")
	}
	return fmt.Sprintf("the message again, to instance %s: the stored answer, after %d ms", r.Instance, r.Took.Milliseconds()),
		cmp.Or(err, c.shows(ctx, "Where is order 1?", r.Text))
}

func (c client) left(ctx context.Context) (string, error) {
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	r, err := c.send(leaving, http.MethodPost, c.chat, "2", "Where is order 2?", func(string) error { leave(); return nil })
	if err == nil {
		return "", errors.New("the stream has ended before its client")
	}
	return "the client leaves in the middle: the answer is stored, as a whole",
		c.shows(ctx, "Where is order 2?", "Order 2 arrives on Friday, says instance "+r.Instance+".")
}

func (c client) stopped(ctx context.Context) (string, error) {
	var stop reply
	r, err := c.answer(ctx, "3", "Where is order 3?", func(string) (err error) {
		stop, err = c.send(ctx, http.MethodPost, c.chat+"/stop", "3", "", nil)
		return err
	})
	if err == nil && !r.Stopped {
		err = fmt.Errorf("the answer ends with %q", r.Type)
	}
	return fmt.Sprintf("instance %s answers, %s stops it: %q is stored", r.Instance, stop.Instance, r.Text),
		cmp.Or(err, c.shows(ctx, "Where is order 3?", r.Text+" (stopped)"))
}

func (c client) killed(ctx context.Context) (string, error) {
	victim := ""
	r, err := c.answer(ctx, "4", "Where is order 4?", func(instance string) (err error) {
		if victim == "" {
			victim = instance
			_, err = c.send(ctx, http.MethodPost, "/instances/"+victim+"/kill", "", "", nil)
		}
		return err
	})
	if err == nil && (victim == "" || strings.Contains(r.Text, victim)) {
		err = fmt.Errorf("the answer is %q, and instance %q was killed", r.Text, victim)
	}
	return fmt.Sprintf("instance %s is killed: one answer, of instance %s", victim, r.Instance),
		cmp.Or(err, c.shows(ctx, "Where is order 4?", r.Text))
}

// client is the client of a chat.
type client struct{ url, chat string }

// reply is what a client got.
type reply struct {
	instances.Reply
	event // the last one
}

// answer sends a message until it is answered, and always under its ID.
func (c client) answer(ctx context.Context, id, question string, inText func(instance string) error) (reply, error) {
	for {
		r, err := c.send(ctx, http.MethodPost, c.chat, id, question, inText)
		if err == nil && !r.Again || ctx.Err() != nil {
			return r, err
		}
		time.Sleep(time.Second)
	}
}

// send sends a request once, and calls inText after the third piece of text. It fails if the stream breaks off.
func (c client) send(ctx context.Context, method, path, id, body string, inText func(instance string) error) (r reply, err error) {
	r.Reply, err = instances.Send(ctx, instances.Request{
		Method: method, URL: c.url + path, Header: http.Header{messageID: {id}}, Body: body, Middle: inText,
		Event: func(name, data string) (bool, error) {
			r.event = event{Type: name}
			return name == "text", json.Unmarshal([]byte(data), &r.event)
		},
	})
	return r, err
}

// shows waits until the chat has a turn. It fails if the question is there twice.
func (c client) shows(ctx context.Context, question, answer string) error {
	for {
		chat, err := c.send(ctx, http.MethodGet, c.chat, "", "", nil)
		switch {
		case strings.Count(chat.Body, question) > 1:
			return errors.New("the chat has the question twice: " + chat.Body)
		case strings.Contains(chat.Body, question+" → "+answer+"\n"):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the chat does not have %q: %w", answer, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
