package instances

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Step is a line of a tour. Play returns the line, or an error if the line is wrong, within a minute.
type Step struct {
	Name string
	Play func(context.Context) (string, error)
}

// Play shows what a client gets, on a line each. It fails if a line is not as it should be.
func Play(ctx context.Context, out io.Writer, steps []Step) error {
	wrong := 0
	for _, step := range steps {
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		text, err := step.Play(limited)
		cancel()
		if ctx.Err() != nil {
			return errors.New("the tour was interrupted")
		}
		if err != nil {
			wrong++
			text = "WRONG: " + err.Error()
		}
		fmt.Fprintf(out, "%-9s %s\n", step.Name, text)
	}
	if wrong > 0 {
		return fmt.Errorf("%d lines are wrong", wrong)
	}
	return nil
}

// Request is a request of a client.
type Request struct {
	Method, URL, Body string
	Header            http.Header
	// Event takes an event of a stream (SSE). It returns whether the event is a piece of text. Nil: there is no
	// stream.
	Event func(name, data string) (text bool, err error)
	// Middle is called after the third piece of text. Nil: nothing is.
	Middle func(instance string) error
}

// Reply is the response to a request.
type Reply struct {
	Status         int
	Instance, Body string
	Pieces         int           // of text
	First, Took    time.Duration // the first piece, and all
}

// Streamed returns a line about the times of the text. It fails if the first half of the time has no text.
func (r Reply) Streamed() (string, error) {
	text := fmt.Sprintf("%d pieces of text, the first after %.1f s, all after %.1f s",
		r.Pieces, r.First.Seconds(), r.Took.Seconds())
	if r.Pieces < 2 || r.First > r.Took/2 {
		return "", errors.New(text)
	}
	return text, nil
}

// Send sends a request once. It fails if the status is not 200, if the response breaks off, or with an error
// of Event or Middle.
func Send(ctx context.Context, req Request) (r Reply, err error) {
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, req.Method, req.URL, strings.NewReader(req.Body))
	if err != nil {
		return r, err
	}
	request.Header = req.Header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return r, err
	}
	defer response.Body.Close()
	r.Status, r.Instance = response.StatusCode, response.Header.Get("Instance")
	event, lines := "", bufio.NewScanner(response.Body)
	for err == nil && lines.Scan() {
		r.Body += lines.Text() + "\n"
		text := false
		switch field, value, _ := strings.Cut(lines.Text(), ": "); {
		case field == "event":
			event = value
		case field == "data" && req.Event != nil:
			text, err = req.Event(event, value)
			event = ""
		}
		if text {
			r.Pieces++
		}
		switch {
		case text && r.Pieces == 1:
			r.First = time.Since(began)
		case text && r.Pieces == 3 && req.Middle != nil:
			err = cmp.Or(err, req.Middle(r.Instance))
		}
	}
	r.Took = time.Since(began)
	if err = cmp.Or(err, lines.Err()); err == nil && r.Status != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", request.URL.Path, response.Status, strings.TrimSpace(r.Body))
	}
	return r, err
}
