package lockedmemory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

// openMemory makes a memory in front of a session store. For many instances, use redisstore.Open.
func openMemory() (memory *lockedmemory.LockedMemory[string, string], closeAll func()) {
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	store, err := memstore.New(lockedmemory.SessionKey, sessionstore.JSON[string]{}, nil, nil)
	if err != nil {
		panic(err)
	}
	memory, err = lockedmemory.New(store, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		panic(err)
	}
	return memory, func() { _ = locker.Close(context.Background()) }
}

// An exchange has any number of messages, as a question, a tool's result and an answer.
func ExampleLockedMemory_Append() {
	memory, closeAll := openMemory()
	defer closeAll()
	ctx := lockedmemory.WithSession(context.Background(), "conversation-42")

	_ = memory.Append(ctx, "Where is my parcel?", "tracking: in Oslo", "It is in Oslo.")
	last, err := memory.Last(ctx, 1)
	fmt.Println(last[0].Input(), last[0].Output(), err)
	// Output: Where is my parcel? It is in Oslo. <nil>
}

// A page shows the newest exchanges first.
func ExampleLockedMemory_Backward() {
	memory, closeAll := openMemory()
	defer closeAll()
	ctx := lockedmemory.WithSession(context.Background(), "conversation-42")

	for _, question := range []string{"one", "two", "three"} {
		_ = memory.Save(ctx, question, strings.ToUpper(question))
	}
	for exchange, err := range memory.Backward(ctx, lockedmemory.Place{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(exchange.Messages)
	}
	// Output:
	// [three THREE]
	// [two TWO]
	// [one ONE]
}

// An export reads from the first exchange to the last.
func ExampleLockedMemory_Forward() {
	memory, closeAll := openMemory()
	defer closeAll()
	ctx := lockedmemory.WithSession(context.Background(), "conversation-42")

	_ = memory.Save(ctx, "one", "ONE")
	_ = memory.Save(ctx, "two", "TWO")
	for exchange, err := range memory.Forward(ctx, lockedmemory.Place{}) {
		fmt.Println(exchange.Messages, err)
	}
	// Output:
	// [one ONE] <nil>
	// [two TWO] <nil>
}

// A handler asks what is stored under the ID of a message before it pays for the model.
func ExampleLockedMemory_Answered() {
	memory, closeAll := openMemory()
	defer closeAll()
	ctx := lockedmemory.WithSession(context.Background(), "conversation-42")

	_ = memory.SaveOnce(ctx, "message-7", "one", "ONE")
	exchange, known, err := memory.Answered(ctx, "message-7")
	fmt.Println(exchange.Output(), known, err)
	// Output: ONE true <nil>
}

// A turn of several steps gives each step an ID of its own. Repeated, it stores none of them twice.
func ExampleLockedMemory_SaveOnce() {
	memory, closeAll := openMemory()
	defer closeAll()
	ctx := lockedmemory.WithSession(context.Background(), "conversation-42")

	for range 2 {
		err := memory.Turn(ctx, func(ctx context.Context) error {
			return errors.Join(
				memory.SaveOnce(ctx, "message-7/1", "Where is my parcel?", "I look it up."),
				memory.SaveOnce(ctx, "message-7/2", "tracking: in Oslo", "It is in Oslo."))
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	history, err := memory.Load(ctx, "")
	fmt.Println(len(history), err)
	// Output: 4 <nil>
}

// Fork begins another conversation with the turns of this one.
func ExampleLockedMemory_Fork() {
	memory, closeAll := openMemory()
	defer closeAll()
	ctx := lockedmemory.WithSession(context.Background(), "conversation-42")
	for _, text := range []string{"one", "two", "three"} {
		if err := memory.Save(ctx, text, strings.ToUpper(text)); err != nil {
			fmt.Println(err)
		}
	}
	var second lockedmemory.Place
	for exchange := range memory.Forward(ctx, lockedmemory.Place{}) {
		if exchange.Input() == "two" {
			second = exchange.Place
		}
	}
	fmt.Println(memory.Fork(ctx, "conversation-43", second))
	history, err := memory.Load(lockedmemory.WithSession(ctx, "conversation-43"), "")
	fmt.Println(history, err)
	// Output:
	// <nil>
	// [one ONE two TWO] <nil>
}

// Clear empties a history. Delete removes the session, and a job sees the sessions that are left.
func ExampleLockedMemory_Delete() {
	memory, closeAll := openMemory()
	defer closeAll()
	ctx := context.Background()
	first := lockedmemory.WithSession(ctx, "conversation-1")
	second := lockedmemory.WithSession(ctx, "conversation-2")
	_ = memory.Save(first, "one", "ONE")
	_ = memory.Save(second, "two", "TWO")

	fmt.Println(memory.Clear(first), memory.Delete(first))
	for session, err := range memory.Sessions(ctx) {
		fmt.Println(session, err)
	}
	// Output:
	// <nil> <nil>
	// conversation-2 <nil>
}

// A readiness probe asks the service for a read, and logs its advice.
func ExampleLockedMemory_Ping() {
	memory, closeAll := openMemory()
	defer closeAll()

	advice, err := memory.Ping(context.Background())
	fmt.Println(len(advice), err)
	// Output: 0 <nil>
}
