package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// tour shows what a client gets, on a line each. It fails if a line is not as it should be.
func tour(ctx context.Context, url string, out io.Writer) error {
	c, wrong := client{url, "/chats/" + rand.Text()}, 0
	for _, step := range []struct {
		name string
		play func(context.Context) (string, error)
	}{{"streamed", c.streamed}, {"once", c.once}, {"left", c.left}, {"stopped", c.stopped}, {"killed", c.killed}} {
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		text, err := step.play(limited)
		cancel()
		if ctx.Err() != nil {
			return errors.New("the tour was interrupted")
		}
		if err != nil {
			wrong++
			text = "WRONG: " + err.Error()
		}
		fmt.Fprintf(out, "%-9s %s\n", step.name, text)
	}
	if wrong > 0 {
		return fmt.Errorf("%d lines are wrong", wrong)
	}
	return nil
}

func (c client) streamed(ctx context.Context) (string, error) {
	r, err := c.answer(ctx, "1", "Where is order 1?", nil)
	text := fmt.Sprintf("%d pieces of text, the first after %.1f s, all after %.1f s", r.pieces, r.first.Seconds(), r.took.Seconds())
	if err == nil && (r.Type != "done" || r.pieces < 2 || r.first > r.took/2) {
		err = errors.New(text + ", and then " + r.Type)
	}
	return text, err
}

// once sends the message of streamed again.
func (c client) once(ctx context.Context) (string, error) {
	r, err := c.answer(ctx, "1", "Where is order 1?", nil)
	if err == nil && r.pieces > 1 {
		err = errors.New("the agent has answered the message again")
	}
	return fmt.Sprintf("the message again, to instance %s: the stored answer, after %d ms", r.instance, r.took.Milliseconds()),
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
		c.shows(ctx, "Where is order 2?", "Order 2 arrives on Friday, says instance "+r.instance+".")
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
	return fmt.Sprintf("instance %s answers, %s stops it: %q is stored", r.instance, stop.instance, r.Text),
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
	return fmt.Sprintf("instance %s is killed: one answer, of instance %s", victim, r.instance),
		cmp.Or(err, c.shows(ctx, "Where is order 4?", r.Text))
}

// client is the client of a chat.
type client struct{ url, chat string }

// reply is what a client got.
type reply struct {
	event                        // the last one
	body, instance string        // all, and its sender
	pieces         int           // of text
	first, took    time.Duration // the first piece, and all
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
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return r, err
	}
	request.Header.Set(messageID, id)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return r, err
	}
	defer response.Body.Close()
	if r.instance = response.Header.Get("Instance"); response.StatusCode != http.StatusOK {
		return r, errors.New(path + ": " + response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	for err == nil && lines.Scan() {
		r.body += lines.Text() + "\n"
		switch name, data, _ := strings.Cut(lines.Text(), ": "); {
		case name == "event":
			r.event = event{Type: data}
		case name == "data":
			err = json.Unmarshal([]byte(data), &r.event)
		case name == "" && r.Type == "text": // the end of the event
			if r.pieces++; r.pieces == 1 {
				r.first = time.Since(began)
			}
			if r.pieces == 3 && inText != nil {
				err = inText(r.instance)
			}
		}
	}
	r.took = time.Since(began)
	return r, cmp.Or(err, lines.Err())
}

// shows waits until the chat has a turn. It fails if the question is there twice.
func (c client) shows(ctx context.Context, question, answer string) error {
	for {
		chat, err := c.send(ctx, http.MethodGet, c.chat, "", "", nil)
		switch {
		case strings.Count(chat.body, question) > 1:
			return errors.New("the chat has the question twice: " + chat.body)
		case strings.Contains(chat.body, question+" → "+answer+"\n"):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the chat does not have %q: %w", answer, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
