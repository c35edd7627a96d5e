package belugarunner_test

import (
	"context"
	"fmt"
	"log"

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
