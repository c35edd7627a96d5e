package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"
)

var thinking = flag.Duration("thinking", 100*time.Millisecond, "how long the model takes for each word")

// model takes the place of your model: it asks for a tool once, and then streams an answer. After an error,
// it returns what it has said until then.
func model(ctx context.Context, messages []Message, chunk func(string)) (Message, error) {
	last := messages[len(messages)-1]
	if last.Role == "user" && strings.Contains(last.Text, "time") {
		return Message{Role: "tool call", Text: "clock"}, ctx.Err()
	}
	said := Message{Role: "assistant"}
	for word := range strings.FieldsSeq(fmt.Sprintf("I have read %d messages. The last one says: %s", len(messages), last.Text)) {
		select {
		case <-time.After(*thinking):
		case <-ctx.Done():
			return said, ctx.Err()
		}
		said.Text = strings.TrimSpace(said.Text + " " + word)
		chunk(word)
	}
	return said, nil
}

// tool takes the place of your tools. One that has an effect keeps the key and the token.
func tool(_ context.Context, call Message, _ string, _ int64) (Message, error) {
	return Message{Role: "tool result", Text: call.Text + ": " + time.Now().Format(time.TimeOnly)}, nil
}
