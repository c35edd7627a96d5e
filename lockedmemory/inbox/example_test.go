package inbox_test

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/inbox"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

// A message that was accepted is answered with the next one, in one turn. Sweep answers what is left.
func Example() {
	locker, err := memlock.New(nil) // redisstore.Open for many instances
	if err != nil {
		panic(err)
	}
	defer locker.Close(context.Background())
	store, err := memstore.New(lockedmemory.SessionKey, sessionstore.JSON[string]{}, nil, nil)
	if err != nil {
		panic(err)
	}
	memory, err := lockedmemory.New(store, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		panic(err)
	}
	box, err := inbox.New(memory, nil)
	if err != nil {
		panic(err)
	}
	answer := func(_ context.Context, open []lockedmemory.Question[string]) ([]string, error) {
		return []string{fmt.Sprintf("The answer to %d messages, the last of which is %s.", len(open), open[len(open)-1].ID)}, nil
	}

	ctx := lockedmemory.WithSession(context.Background(), "conversation-42")
	_ = memory.Put(ctx, "message-7", "Hello?") // its instance has died since
	fmt.Println(box.Submit(ctx, "message-8", "Where is my order?", answer))
	fmt.Println(box.Submit(ctx, "message-7", "Hello?", answer)) // a repetition
	_ = memory.Put(ctx, "message-9", "Thank you.")
	fmt.Println(box.Sweep(context.Background(), answer))
	// Output:
	// [The answer to 2 messages, the last of which is message-8.] <nil>
	// [The answer to 2 messages, the last of which is message-8.] <nil>
	// 1 <nil>
}
