package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

type service struct{ runner *belugarunner.Runner }

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /chats/{id}", s.ask)
	mux.HandleFunc("GET /chats/{id}", s.show)
	return mux
}

// ask runs the agent, and streams its events. A real service takes the tenant from the user that it
// has authenticated: ctx = core.WithTenant(ctx, tenant).
func (s *service) ask(w http.ResponseWriter, r *http.Request) {
	question, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || len(question) == 0 {
		http.Error(w, "the body is the question", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := &stream{w: w}
	defer out.close()
	ctx := context.WithValue(r.Context(), streamKey{}, out)

	// All events but those of progress arrive here after the turn is stored.
	for event, err := range s.runner.Run(ctx, r.PathValue("id"), schema.NewHumanMessage(string(question))) {
		if err != nil {
			log.Printf("instance %d: %v", os.Getpid(), err) // the text may name servers
			out.send("error", meaning(err))
			return
		}
		text := event.Text
		if event.ToolCall != nil {
			text = event.ToolCall.Name + " " + event.ToolCall.Arguments
		}
		if event.ToolResult != nil {
			text = belugamemory.Codec{}.Text(&schema.ToolMessage{Parts: event.ToolResult.Content})
		}
		out.send(string(event.Type), text)
	}
}

// meaning tells the client whether to send the message again.
func meaning(err error) string {
	var coded *core.Error
	switch {
	case errors.As(err, &coded) && coded.Code == belugamemory.ErrOutcomeUnknown, errors.Is(err, distlock.ErrLost):
		return "the message may be stored: look at the chat before you send it again"
	case belugamemory.Retryable(err), errors.Is(err, distlock.ErrClosed): // another instance answers
		return "nothing is stored: send the message again"
	}
	return "nothing is stored, and to send the message again does not help"
}

func (s *service) show(w http.ResponseWriter, r *http.Request) {
	session, err := s.runner.Sessions().Get(r.Context(), r.PathValue("id"))
	var coded *core.Error
	switch {
	case errors.As(err, &coded) && coded.Code == core.ErrNotFound:
		http.Error(w, "there is no such chat", http.StatusNotFound)
		return
	case err != nil:
		log.Printf("instance %d: %v", os.Getpid(), err)
		http.Error(w, "the chat cannot be read", http.StatusServiceUnavailable)
		return
	}
	for _, turn := range session.Turns {
		fmt.Fprintf(w, "%s → %s\n", belugamemory.Codec{}.Text(turn.Input), belugamemory.Codec{}.Text(turn.Output))
	}
}

// stream writes events to a client. The agent of a cancelled run may call send after the request has
// ended.
type stream struct {
	mu sync.Mutex
	w  http.ResponseWriter // nil after the request
}

type streamKey struct{}

// progress sends an event at once. Only a tool or model calls it, so the run has its session.
func progress(ctx context.Context, text string) {
	if out, ok := ctx.Value(streamKey{}).(*stream); ok {
		out.send("progress", fmt.Sprintf("instance %d: %s", os.Getpid(), text))
	}
}

func (s *stream) send(event, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return
	}
	data, _ := json.Marshal(text) // a string always has a JSON
	fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, data)
	_ = http.NewResponseController(s.w).Flush() // a client that is gone ends the context
}

func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w = nil
}
