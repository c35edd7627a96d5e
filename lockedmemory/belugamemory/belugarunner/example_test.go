package belugarunner_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// With redis://… as the URL, all instances of the application share the sessions.
func ExampleNew() {
	// In an application, assistant is agent.New("assistant", agent.WithLLM(model)).
	assistant := answers(func(_ context.Context, question string) (string, error) { return "You asked: " + question, nil })
	runner, err := belugarunner.New(assistant, "mem://", &belugarunner.Options{Namespace: "support"})
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

// The model gets the turns before the question.
func ExampleHistory() {
	model := belugarunner.History(&asked{}) // in an application, the model of a provider
	runner, err := belugarunner.New(agent.New("assistant", agent.WithLLM(model)), "mem://", &belugarunner.Options{Namespace: "history"})
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
