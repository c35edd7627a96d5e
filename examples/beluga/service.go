package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

//go:embed page.html
var page string

type service struct{ runner *belugarunner.Runner }

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /chats/{id}", s.ask)
	mux.HandleFunc("POST /chats/{id}/stop", s.stop)
	mux.HandleFunc("GET /chats/{id}", s.show)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) })
	return mux
}

// messageID is the header with the ID of a message, which its client chooses.
const messageID = "Idempotency-Key"

// event is an event of a stream. Its data is JSON.
type event struct {
	Type    string         `json:"-"`
	Text    string         `json:"text,omitempty"`
	Stopped bool           `json:"stopped,omitempty"` // of done: the text until the stop
	Code    core.ErrorCode `json:"code,omitempty"`    // of error: what the client saw is not kept
	Again   bool           `json:"again,omitempty"`   // of error: send the message again, under its ID
}

// ask runs the agent, and streams its events. After done, the turn is stored. A repeated message gets the events
// of the stored answer, at each instance. The run of a client that leaves goes on. A real service takes the tenant
// from the user that it has authenticated: ctx = core.WithTenant(ctx, tenant).
func (s *service) ask(w http.ResponseWriter, r *http.Request) {
	question, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	id := r.Header.Get(messageID)
	if err != nil || len(question) == 0 || id == "" {
		http.Error(w, "the body is the question, and the header "+messageID+" is its ID", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	message := schema.NewHumanMessage(string(question))
	message.Metadata = map[string]any{"message_id": id}
	for e, err := range s.runner.Run(r.Context(), r.PathValue("id"), message) {
		if r.Context().Err() != nil { // the client is gone
			return
		}
		next := event{Type: string(e.Type), Text: e.Text, Stopped: e.Metadata[belugarunner.Stopped] == true}
		switch {
		case err != nil:
			log.Printf("instance %d: %v", os.Getpid(), err) // the text may name servers
			next = failure(err)
		case e.ToolCall != nil:
			next.Text = e.ToolCall.Name + " " + e.ToolCall.Arguments
		case e.ToolResult != nil:
			next.Text = belugamemory.Codec{}.Text(&schema.ToolMessage{Parts: e.ToolResult.Content})
		}
		data, _ := json.Marshal(next) // has no error
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", next.Type, data)
		_ = http.NewResponseController(w).Flush() // a client that is gone ends the context
	}
}

// failure tells the client whether to send the message again. Under its ID, that is safe after each loss.
func failure(err error) event {
	e := event{Type: "error", Code: "failed"}
	if coded := new(core.Error); errors.As(err, &coded) {
		e.Code = coded.Code
	}
	e.Again = belugamemory.Retryable(err) || errors.Is(err, distlock.ErrLost) ||
		errors.Is(err, distlock.ErrOutcomeUnknown) || errors.Is(err, distlock.ErrClosed) // another instance answers
	return e
}

// stop ends the run of the message with an ID, or without an ID the session's run and those that wait. The run
// may be at another instance.
func (s *service) stop(w http.ResponseWriter, r *http.Request) {
	const grace = 5 * time.Second // to store the partial answer
	chat, id := r.PathValue("id"), r.Header.Get(messageID)
	if id == "" {
		if err := s.runner.StopSession(r.Context(), chat, grace); err != nil {
			unavailable(w, err)
		}
		return
	}
	stored, err := s.runner.StopMessage(r.Context(), chat, id, grace)
	if err != nil {
		unavailable(w, err)
		return
	}
	fmt.Fprintf(w, "{\"stored\":%t}\n", stored)
}

func (s *service) show(w http.ResponseWriter, r *http.Request) {
	session, err := s.runner.Sessions().Get(r.Context(), r.PathValue("id"))
	var coded *core.Error
	switch {
	case errors.As(err, &coded) && coded.Code == core.ErrNotFound:
		http.Error(w, "there is no such chat", http.StatusNotFound)
		return
	case err != nil:
		unavailable(w, err)
		return
	}
	for _, turn := range session.Turns {
		mark := map[bool]string{true: " (stopped)"}[turn.Metadata[belugarunner.Stopped] == true]
		fmt.Fprintf(w, "%s → %s%s\n", belugamemory.Codec{}.Text(turn.Input), belugamemory.Codec{}.Text(turn.Output), mark)
	}
}

func unavailable(w http.ResponseWriter, err error) {
	log.Printf("instance %d: %v", os.Getpid(), err)
	http.Error(w, "nothing is known: ask again", http.StatusServiceUnavailable)
}
