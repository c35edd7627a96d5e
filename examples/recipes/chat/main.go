// Command chat is one instance of a chat service over plain HTTP. Any instance answers any message: the
// conversations are in Redis, and a conversation has one turn at a time.
//
//	go run ./examples/recipes/chat -listen localhost:8080 &
//	go run ./examples/recipes/chat -listen localhost:8081 &
//	curl -d 'Hello' -H 'Idempotency-Key: 1' http://localhost:8080/conversations/42
//	curl http://localhost:8081/conversations/42
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// Message is one message of a conversation.
type Message struct{ Role, Text string }

type service struct {
	memory   *lockedmemory.LockedMemory[Message, Message]
	thinking time.Duration
}

func main() {
	lock := flag.String("lock", cmp.Or(os.Getenv("LOCK_URL"), "redis://localhost:6379"), "URL of the Redis")
	listen := flag.String("listen", "localhost:8080", "address to listen on")
	ttl := flag.Duration("ttl", 5*time.Second, "how long a conversation waits for a crashed instance")
	thinking := flag.Duration("thinking", time.Second, "how long the model takes")
	flag.Parse()
	locker, store, err := redisstore.Open(context.Background(), *lock, lockedmemory.SessionKey,
		sessionstore.JSON[Message]{}, &redisstore.Options{Lock: distlock.Options{Namespace: "chat", TTL: *ttl}})
	if err != nil {
		log.Fatal(err)
	}
	memory, err := lockedmemory.New(store, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	s := &service{memory, *thinking}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /conversations/{id}", s.post)
	mux.HandleFunc("GET /conversations/{id}", s.get)
	log.Fatal(http.Serve(listener, mux)) // examples/recipes/shutdown ends in order
}

func (s *service) post(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	key := r.Header.Get("Idempotency-Key") // the client keeps the key when it repeats the message
	if err != nil || key == "" {
		http.Error(w, "a message needs a body and an Idempotency-Key", http.StatusBadRequest)
		return
	}
	ctx := lockedmemory.WithSession(r.Context(), r.PathValue("id"))
	question := Message{"user", string(text)}
	answer, err := s.memory.Answer(ctx, key, question, func(ctx context.Context) ([]Message, error) {
		history, err := s.memory.Load(ctx, "") // no other instance writes until the answer is stored
		if err != nil {
			return nil, err
		}
		return s.model(ctx, history, question)
	})
	reply(w, answer, err)
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	messages, err := s.memory.Load(lockedmemory.WithSession(r.Context(), r.PathValue("id")), "")
	reply(w, messages, err)
}

// model takes the place of your model.
func (s *service) model(ctx context.Context, history []Message, question Message) ([]Message, error) {
	select {
	case <-time.After(s.thinking):
		return []Message{{"assistant", fmt.Sprintf("Answer %d to %q", len(history)/2+1, question.Text)}}, nil
	case <-ctx.Done(): // the client has gone, or the lease is lost
		return nil, context.Cause(ctx)
	}
}

func reply(w http.ResponseWriter, messages []Message, err error) {
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(messages)
	case errors.Is(err, distlock.ErrInvalidKey), errors.Is(err, lockedmemory.ErrTurnID):
		http.Error(w, "the conversation or the key is not valid", http.StatusBadRequest)
	default: // the client may repeat the message with its key, at any instance
		log.Print(err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}
