package main

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/inbox"
)

var (
	inboxed = flag.Bool("inbox", false, "accept a message before it waits: then a killed instance loses none")
	quiet   = flag.Duration("quiet", 300*time.Millisecond, "with -inbox, how long a turn waits for a further message, to answer all at once")
)

// openInbox opens the inbox, and answers what dead instances have left: now, and each minute until SIGTERM.
func (s *service) openInbox() (sweeps *sync.WaitGroup, err error) {
	sweeps = &sync.WaitGroup{}
	if !*inboxed {
		return sweeps, nil
	}
	s.inbox, err = inbox.New(s.memory, &inbox.Options{Quiet: *quiet})
	if err != nil {
		return nil, err
	}
	sweeps.Go(func() {
		for s.stopping.Err() == nil {
			if answered, err := s.inbox.Sweep(s.stopping, s.answerAll(&events{})); err != nil || answered > 0 {
				slog.Info("answered messages of other instances", "messages", answered, "error", err)
			}
			select {
			case <-time.After(time.Minute):
			case <-s.stopping.Done():
			}
		}
	})
	return sweeps, nil
}

// submit is post for an inbox. A client that leaves ends nothing: its message is accepted.
func (s *service) submit(w http.ResponseWriter, r *http.Request) {
	events := &events{w: w}
	id, question, err := message(w, r)
	if err != nil {
		events.fail(err)
		return
	}
	ctx, cancel := context.WithTimeout(session(context.WithoutCancel(r.Context()), r), 5*time.Minute)
	defer cancel()
	answer, err := s.inbox.Submit(ctx, id, question, s.answerAll(events))
	if err != nil { // it may be pending
		events.fail(err)
		return
	}
	events.send("complete", answer[len(answer)-1])
}

// answerAll answers all messages that are pending. The chunks go to one of the clients, and the answer to all.
func (s *service) answerAll(events *events) inbox.Func[Message] {
	return func(ctx context.Context, open []lockedmemory.Question[Message]) ([]Message, error) {
		if s.stopping.Err() != nil { // another instance answers
			return nil, distlock.ErrClosed
		}
		messages, err := s.memory.Load(ctx, "")
		if err != nil {
			return nil, err
		}
		for _, q := range open {
			messages = append(messages, q.Message)
		}
		return respond(ctx, ctx, messages, open[0].ID, events)
	}
}
