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

// openMemory makes a memory in front of a session store, and the context of a conversation.
// For many instances, use redisstore.Open.
func openMemory() (memory *lockedmemory.LockedMemory[string, string], ctx context.Context, closeAll func()) {
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
	ctx = lockedmemory.WithSession(context.Background(), "conversation-42")
	return memory, ctx, func() { _ = locker.Close(context.Background()) }
}

func ExampleNew() {
	ctx := context.Background()
	locker, err := memlock.New(nil) // redislock.New for many instances
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)

	inner := &history{} // any memory with Save, Load, Search and Clear
	memory, err := lockedmemory.New(inner, locker, lockedmemory.FixedKey("conversation-42"), nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(memory.Save(ctx, "hello", "hi there"))
	// Output: <nil>
}

func ExampleLockedMemory_Turn() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()

	err := memory.Turn(ctx, func(ctx context.Context) error {
		before, err := memory.Load(ctx, "") // inside, so that no other instance adds to it before Save
		if err != nil {
			return err
		}
		answer := strings.ToUpper("hello") // the model
		fmt.Println(len(before), answer)
		return memory.Save(ctx, "hello", answer)
	})
	fmt.Println(err)
	// Output:
	// 0 HELLO
	// <nil>
}

// A chat service whose queue delivers a message twice.
func ExampleLockedMemory_Answer() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()

	model := func(ctx context.Context) ([]string, error) {
		history, err := memory.Last(ctx, 20)
		if err != nil {
			return nil, err
		}
		fmt.Println("the model is asked, with", len(history), "exchanges before")
		return []string{"tracking: in Oslo", "It is in Oslo."}, nil // a tool's result and the answer
	}
	for range 2 {
		answer, err := memory.Answer(ctx, "message-7", "Where is my parcel?", model)
		fmt.Println(answer, err)
	}
	exchange, known, err := memory.Answered(ctx, "message-7")
	fmt.Println(exchange.Output(), known, err)
	// Output:
	// the model is asked, with 0 exchanges before
	// [tracking: in Oslo It is in Oslo.] <nil>
	// [tracking: in Oslo It is in Oslo.] <nil>
	// It is in Oslo. true <nil>
}

// An agent that stores its exchange itself: a repeated message gets the stored one.
func ExampleLockedMemory_Once() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()

	for range 2 {
		stored, err := memory.Once(ctx, "message-7", func(ctx context.Context) error {
			return memory.SaveOnce(ctx, "message-7", "Where is my parcel?", "It is in Oslo.")
		})
		fmt.Println(stored, err)
	}
	// Output:
	// [] <nil>
	// [Where is my parcel? It is in Oslo.] <nil>
}

// The user asks for another answer to the last question.
func ExampleLockedMemory_Replace() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()
	_ = memory.Save(ctx, "Tell me a joke.", "No.")

	err := memory.Turn(ctx, func(ctx context.Context) error {
		last, err := memory.Last(ctx, 1)
		if err != nil || len(last) == 0 {
			return err
		}
		exchange := last[0] // the same place, turn ID and number
		exchange.Messages = []string{exchange.Input(), "A mutex walks into a bar."}
		return memory.Replace(ctx, exchange.Place, exchange.Place, exchange)
	})
	history, err2 := memory.Load(ctx, "")
	fmt.Println(strings.Join(history, " "), err, err2)
	// Output: Tell me a joke. A mutex walks into a bar. <nil> <nil>
}

// An exchange has any number of messages, as a question, a tool's result and an answer. A page shows
// the newest exchanges first, an export the oldest.
func ExampleLockedMemory_Append() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()

	_ = memory.Append(ctx, "Where is my parcel?", "tracking: in Oslo", "It is in Oslo.")
	_ = memory.Save(ctx, "Thanks!", "You are welcome.")
	for exchange, err := range memory.Backward(ctx, lockedmemory.Place{}) {
		fmt.Println(exchange.Output(), err)
	}
	for exchange, err := range memory.Forward(ctx, lockedmemory.Place{}) {
		fmt.Println(exchange.Messages, err)
	}
	// Output:
	// You are welcome. <nil>
	// It is in Oslo. <nil>
	// [Where is my parcel? tracking: in Oslo It is in Oslo.] <nil>
	// [Thanks! You are welcome.] <nil>
}

// A turn of several steps gives each step an ID of its own. Repeated, it stores none of them twice.
func ExampleLockedMemory_SaveOnce() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()

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

// Fork begins another conversation with the turns of this one, up to the second.
func ExampleLockedMemory_Fork() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()
	for _, text := range []string{"one", "two", "three"} {
		_ = memory.Save(ctx, text, strings.ToUpper(text))
	}
	last, err := memory.Last(ctx, 2)
	if err != nil {
		panic(err)
	}
	fmt.Println(memory.Fork(ctx, "conversation-43", last[0].Place))
	history, err := memory.Load(lockedmemory.WithSession(ctx, "conversation-43"), "")
	fmt.Println(history, err)
	// Output:
	// <nil>
	// [one ONE two TWO] <nil>
}

// Clear empties a history. Delete removes the session. A job sees the sessions that are left, and a
// readiness probe the advice of the service. Both need no session.
func ExampleLockedMemory_Delete() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()
	second := lockedmemory.WithSession(ctx, "conversation-43")
	_ = memory.Save(ctx, "one", "ONE")
	_ = memory.Save(second, "two", "TWO")

	fmt.Println(memory.Clear(ctx), memory.Delete(ctx))
	for session, err := range memory.Sessions(context.Background()) {
		fmt.Println(session, err)
	}
	advice, err := memory.Ping(context.Background())
	fmt.Println(len(advice), err)
	// Output:
	// <nil> <nil>
	// conversation-43 <nil>
	// 0 <nil>
}

// A stop button ends the Answer that runs, in any instance. A grace lets it store what it has.
func ExampleLockedMemory_Stop() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()

	_, err := memory.Answer(ctx, "message-7", "Tell me a story.", func(context.Context) ([]string, error) {
		stored, err := memory.Stop(ctx, "message-7", 0) // by another request, with a context of its own
		fmt.Println(stored, err)
		return []string{"Once upon a time"}, nil
	})
	fmt.Println(errors.Is(err, lockedmemory.ErrStopped))
	history, err := memory.Load(ctx, "")
	fmt.Println(history, err)
	// Output:
	// false <nil>
	// true
	// [] <nil>
}

// Put accepts a message before it waits. A job finds the sessions with such messages, and answers all of one in one
// turn. Package inbox does the same.
func ExampleLockedMemory_AnswerAll() {
	memory, ctx, closeAll := openMemory()
	defer closeAll()
	fmt.Println(memory.Put(ctx, "message-7", "Where is my order?"), memory.Put(ctx, "message-8", "It is number 12."))

	for session, err := range memory.Inboxes(context.Background()) {
		if err != nil {
			panic(err)
		}
		ctx := lockedmemory.WithSession(context.Background(), session)
		pending, err := memory.Pending(ctx)
		if err != nil {
			panic(err)
		}
		results, err := memory.AnswerAll(ctx, pending, func(_ context.Context, open []lockedmemory.Question[string]) ([]string, error) {
			return []string{fmt.Sprint("To ", len(open), " messages: it comes tomorrow.")}, nil
		})
		fmt.Println(results[0].Answer, results[1].Answer, err)
	}
	// Output:
	// <nil> <nil>
	// [To 2 messages: it comes tomorrow.] [To 2 messages: it comes tomorrow.] <nil>
}
