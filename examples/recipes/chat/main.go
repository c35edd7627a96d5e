// Command chat is one instance of a chat service over plain HTTP. Any instance answers any message.
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
	"unicode/utf8"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

type Message struct{ Role, Text string }
type conversations = lockedmemory.LockedMemory[Message, Message]
type service struct{ memory *conversations }

var thinking = flag.Duration("thinking", time.Second, "how long the model takes")

func main() {
	lock := flag.String("lock", cmp.Or(os.Getenv("LOCK_URL"), "redis://localhost:6379"), "URL of the Redis")
	listen := flag.String("listen", "localhost:8080", "address to listen on")
	ttl := flag.Duration("ttl", 5*time.Second, "how long a conversation waits for a crashed instance")
	flag.Parse()
	locker, store, err := redisstore.Open(context.Background(), *lock, lockedmemory.SessionKey,
		sessionstore.JSON[Message]{}, &redisstore.Options{Lock: distlock.Options{Namespace: "chat", TTL: *ttl},
			Retention: sessionstore.Retention{IdleTTL: 30 * 24 * time.Hour}, Store: sessionstore.Options{Window: 50}})
	if err != nil {
		log.Fatal(err)
	}
	memory, err := lockedmemory.New(store, locker, lockedmemory.SessionKey, &lockedmemory.Options{Wait: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	http.HandleFunc("POST /conversations/{id}", service{memory}.post)
	http.HandleFunc("GET /conversations/{id}", service{memory}.get)
	log.Fatal(http.Serve(listener, nil)) // examples/recipes/shutdown ends in order
}

func (s service) post(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	key := r.Header.Get("Idempotency-Key") // the client keeps the key when it repeats the message
	if err != nil || key == "" || !utf8.Valid(text) {
		http.Error(w, "a message needs a text in UTF-8 and an Idempotency-Key", http.StatusBadRequest)
		return
	}
	ctx := lockedmemory.WithSession(context.WithoutCancel(r.Context()), r.PathValue("id"))
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // a turn goes on if its client gives up
	defer cancel()
	question, asked := Message{"user", string(text)}, false
	answer, err := s.memory.Answer(ctx, key, question, func(ctx context.Context) ([]Message, error) {
		asked = true
		history, err := s.memory.Load(ctx, "") // no other instance writes until the answer is stored
		if err != nil {
			return nil, err
		}
		return model(ctx, history, question)
	})
	if err == nil && !asked { // the answer is an earlier one: it must be that of the same question
		known, _, unread := s.memory.Answered(ctx, key)
		if err = unread; err == nil && known.Input() != question {
			err = sessionstore.ErrIDConflict
		}
	}
	reply(w, answer, err)
}

func (s service) get(w http.ResponseWriter, r *http.Request) {
	messages, err := s.memory.Load(lockedmemory.WithSession(r.Context(), r.PathValue("id")), "")
	reply(w, messages, err)
}

// model takes the place of your model.
func model(ctx context.Context, history []Message, question Message) ([]Message, error) {
	select {
	case <-time.After(*thinking):
	case <-ctx.Done(): // the time is over, or the lease is lost
	}
	return []Message{{"assistant", fmt.Sprintf("Answer %d to %q", len(history)/2+1, question.Text)}}, context.Cause(ctx)
}

func reply(w http.ResponseWriter, messages []Message, err error) {
	is := func(target error) bool { return errors.Is(err, target) }
	status := http.StatusServiceUnavailable // a repetition may succeed, at any instance: see docs/reference/errors.md
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(messages)
		return
	case is(distlock.ErrInvalidKey), is(lockedmemory.ErrInvalidID), is(sessionstore.ErrTooLarge), is(sessionstore.ErrCodec):
		status = http.StatusBadRequest
	case is(sessionstore.ErrIDConflict), is(lockedmemory.ErrAnswerGone):
		status = http.StatusConflict
	case is(distlock.ErrInvalidOption), is(errors.ErrUnsupported), is(sessionstore.ErrBroken):
		status = http.StatusInternalServerError // a repetition fails, too
	}
	log.Print(err)
	http.Error(w, http.StatusText(status), status)
}
