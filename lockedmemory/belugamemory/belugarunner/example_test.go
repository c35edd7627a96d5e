package belugarunner_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// With redis://… as the URL, all instances of the application share the sessions.
func ExampleNew() {
	// In an application, assistant is agent.New("assistant", agent.WithLLM(model)).
	assistant := answers(func(_ context.Context, question string) (string, error) { return "You asked: " + question, nil })
	runner, err := belugarunner.New(assistant, "mem://", belugarunner.WithNamespace("support"))
	if err != nil {
		log.Fatal(err)
	}
	defer runner.Shutdown(context.Background())

	ctx := context.Background()
	for event, err := range runner.Run(ctx, "session-4711", schema.NewHumanMessage("Where is my order?")) {
		fmt.Println(event.Text, err)
	}
	session, err := runner.Sessions().Get(ctx, "session-4711")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(session.AgentID, len(session.Turns))
	// Output:
	// You asked: Where is my order? <nil>
	// agent 1
}

// The runs of a session follow each other, on all instances.
func ExampleLockRun() {
	locker, err := memlock.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())
	service := runtime.NewInMemorySessionService() // in an application, one that all instances share
	sessions, err := belugarunner.WrapSessions(service, locker)
	if err != nil {
		log.Fatal(err)
	}
	// In an application, runner is runtime.NewRunner(belugarunner.WrapAgent(assistant),
	// runtime.WithSessionService(sessions)).
	runner := scriptedRunner{sessions}
	run, err := belugarunner.LockRun(locker, runner.Run)
	if err != nil {
		log.Fatal(err)
	}

	session, err := service.Create(context.Background(), "agent")
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range run(context.Background(), session.ID, schema.NewHumanMessage("hello")) {
		fmt.Println(event, err)
	}
	fmt.Println(errors.Is(sessions.Update(context.Background(), session), distlock.ErrNotHeld))
	// Output:
	// turn 1 <nil>
	// true
}

// A cancelled run releases its session when its agent has ended.
func ExampleWrapAgent() {
	locker, err := memlock.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())
	assistant := belugarunner.WrapAgent(answers(func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}))
	run, err := belugarunner.LockRun(locker, func(ctx context.Context, _, question string) iter.Seq2[agent.Event, error] {
		return assistant.Stream(ctx, question) // in an application, the Run of a Runner with this agent
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	for _, err := range run(ctx, "conversation-42", "hello") {
		fmt.Println(err)
	}
	info, err := locker.Inspect(context.Background(), "conversation-42")
	fmt.Println(info.Held, err)
	// Output:
	// context deadline exceeded
	// false <nil>
}

// scriptedRunner replaces a runtime.Runner.
type scriptedRunner struct{ sessions runtime.SessionService }

func (r scriptedRunner) Run(ctx context.Context, sessionID string, input schema.Message) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		session, err := r.sessions.Get(ctx, sessionID)
		if err == nil {
			session.Turns = append(session.Turns, schema.Turn{Input: input, Output: schema.NewAIMessage("hello")})
			err = r.sessions.Update(ctx, session)
		}
		if err != nil {
			yield("", err)
			return
		}
		yield(fmt.Sprintf("turn %d", len(session.Turns)), nil)
	}
}

// The model gets the turns before the question.
func ExampleHistory() {
	model := belugarunner.History(&asked{}) // in an application, the model of a provider
	runner, err := belugarunner.New(agent.New("assistant", agent.WithLLM(model)), "mem://", belugarunner.WithNamespace("history"))
	if err != nil {
		log.Fatal(err)
	}
	defer runner.Shutdown(context.Background())

	for _, question := range []string{"My name is Ada.", "What is my name?"} {
		for event, err := range runner.Run(context.Background(), "session-4711", schema.NewHumanMessage(question)) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(event.Type, event.Text)
		}
	}
	// Output:
	// text re My name is Ada.
	// done re My name is Ada.
	// text re What is my name?
	// done re What is my name?
}
