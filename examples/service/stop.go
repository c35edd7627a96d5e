package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
)

// turns are the options of the memory.
var turns = &lockedmemory.Options{Wait: 30 * time.Second}

func init() {
	flag.DurationVar(&turns.Grace, "keep", time.Second, "how long a stopped turn has to store the words until then; 0: it stores none")
	flag.DurationVar(&turns.After, "spare", 0, "with -busy interrupt, how old a turn becomes before the next message ends it")
	flag.Func("busy", "what a message does while another one is answered: queue, refuse or interrupt (default queue)", func(name string) error {
		busy, known := map[string]lockedmemory.BusyPolicy{
			"queue": lockedmemory.Queue, "refuse": lockedmemory.Refuse, "interrupt": lockedmemory.Interrupt}[name]
		if !known {
			return errors.New("want queue, refuse or interrupt")
		}
		turns.Busy = busy
		return nil
	})
}

// stop is the Stop button, at any instance: of the message that the Idempotency-Key names, or without one of
// the turn that runs and of those that wait. After its answer, nothing more of them is stored.
func (s *service) stop(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(session(r.Context(), r), turns.Grace+10*time.Second)
	defer cancel()
	stored, err := s.memory.Stop(ctx, r.Header.Get("Idempotency-Key"), turns.Grace)
	if err != nil { // press again
		(&events{w: w}).fail(err)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]bool{"stored": stored}) // the answer, or its first words
}
