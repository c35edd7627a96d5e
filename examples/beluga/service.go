package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// patience is how long a request may take, with its wait in the queue.
const patience = time.Minute

type service struct {
	memory *belugamemory.Memory
	delay  time.Duration // of the model
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sessions/{id}/messages", s.ask)
	mux.HandleFunc("GET /sessions/{id}", s.history)
	mux.HandleFunc("DELETE /sessions/{id}", s.forget)
	// It does not ask the lock service: to restart all instances does not help if that is down.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

// session is the context of a request: it names the session, for the lock and for the store.
func session(r *http.Request) (context.Context, context.CancelFunc) {
	ctx := core.WithSessionID(r.Context(), r.PathValue("id"))
	// A real service takes the tenant from whom it has authenticated, not from a header that
	// anybody can write.
	ctx = core.WithTenant(ctx, core.TenantID(r.Header.Get("X-Tenant-ID")))
	return context.WithTimeout(ctx, patience)
}

func (s *service) ask(w http.ResponseWriter, r *http.Request) {
	var question struct{ Text string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&question); err != nil || question.Text == "" {
		reply(w, http.StatusBadRequest, map[string]any{"error": `the body must be {"text": "…"}`})
		return
	}
	ctx, cancel := session(r)
	defer cancel()
	answer, repeated, err := s.turn(ctx, question.Text, r.Header.Get("Idempotency-Key"))
	if err != nil {
		fail(w, r, err)
		return
	}
	body := map[string]any{"answer": answer}
	if repeated {
		body["repeated"] = true
	}
	reply(w, http.StatusOK, body)
}

// turn answers a message. No other instance works on the session from before the Load until the answer is
// stored.
//
// A message with a key may come again, at any instance, also at two at once. Answer stores its answer once,
// and returns the stored one without asking the model, also if that is beyond the window of Load. If it was
// cleared, Answer fails with ErrAnswerGone.
//
// Without a key, a message that is sent again is a new one.
func (s *service) turn(ctx context.Context, text, key string) (answer string, repeated bool, err error) {
	question := schema.NewHumanMessage(text)
	ask := func(ctx context.Context) ([]schema.Message, error) {
		repeated = false
		history, err := s.memory.Load(ctx, "")
		if err != nil {
			return nil, err
		}
		answer, err = s.model(ctx, history, text)
		return []schema.Message{schema.NewAIMessage(answer)}, err
	}
	if key == "" {
		err = s.memory.Turn(ctx, func(ctx context.Context) error {
			messages, err := ask(ctx)
			if err != nil {
				return err
			}
			return s.memory.Save(ctx, question, messages[0])
		})
		return answer, false, err
	}
	repeated = true
	messages, err := s.memory.Answer(ctx, key, question, ask)
	if err != nil || !repeated {
		return answer, false, err
	}
	stored, _, err := s.memory.Answered(ctx, key)
	if err == nil && len(stored) > 0 && textOf(stored[0].Input()) != text {
		err = errOtherText
	}
	return textOf(messages[len(messages)-1]), true, err
}

var errOtherText = errors.New("the Idempotency-Key belongs to a message with another text")

// model takes its time, and tells what it has seen.
func (s *service) model(ctx context.Context, history []schema.Message, text string) (string, error) {
	asked := 1
	for _, m := range history {
		if m.GetRole() == schema.RoleHuman {
			asked++
		}
	}
	select {
	case <-time.After(s.delay):
		return fmt.Sprintf("Answer %d: you said %q.", asked, text), nil
	case <-ctx.Done(): // also when the lease is lost
		return "", context.Cause(ctx)
	}
}

func (s *service) history(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := session(r)
	defer cancel()
	messages, err := s.memory.Load(ctx, "")
	if err != nil {
		fail(w, r, err)
		return
	}
	list := make([]map[string]string, len(messages))
	for i, m := range messages {
		list[i] = map[string]string{"role": string(m.GetRole()), "text": textOf(m)}
	}
	reply(w, http.StatusOK, map[string]any{"messages": list})
}

func (s *service) forget(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := session(r)
	defer cancel()
	if err := s.memory.Clear(ctx); err != nil {
		fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func textOf(m schema.Message) string { return belugamemory.Codec{}.Text(m) }

// fail tells the client what an error means. The error's own text is for the log: it may tell of servers.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	var coded *core.Error
	var code core.ErrorCode
	if errors.As(err, &coded) {
		code = coded.Code
	}
	lost, late := errors.Is(err, distlock.ErrLost), errors.Is(err, context.DeadlineExceeded)
	// The service shuts down, or the history has expired. Nothing was stored.
	closed := errors.Is(err, distlock.ErrClosed) || errors.Is(err, distlock.ErrNotHeld) || errors.Is(err, sessionstore.ErrGone)
	again := r.Header.Get("Idempotency-Key") != "" || r.Method != http.MethodPost // what may have been done can be repeated
	status, text := http.StatusInternalServerError, "something is wrong here"
	switch {
	case r.Context().Err() != nil:
		return // nobody listens any more
	case errors.Is(err, errOtherText):
		status, text = http.StatusUnprocessableEntity, err.Error()
	case errors.Is(err, lockedmemory.ErrAnswerGone):
		status, text = http.StatusConflict, "this Idempotency-Key was answered before, and the answer is not in the history any more"
	case code == core.ErrTimeout: // of the turn, which was not begun
		status, text = http.StatusServiceUnavailable, "the session is busy, try again"
	case code == belugamemory.ErrOutcomeUnknown, !again && (lost || late):
		text = "it is not known whether the message was stored: look at the history before you send it again"
	case lost, late, closed:
		status, text = http.StatusServiceUnavailable, "the answer was interrupted, try again"
	case core.IsRetryable(err):
		status, text = http.StatusServiceUnavailable, "the memory does not answer, try again"
	case code == core.ErrInvalidInput && !errors.Is(err, sessionstore.ErrBroken):
		status, text = http.StatusBadRequest, "the session, the key or the message is not valid"
	}
	log.Printf("%s: %d: %v", r.Method, status, err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, status, map[string]any{"error": text})
}

func reply(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
