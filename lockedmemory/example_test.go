package lockedmemory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

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
	ctx := context.Background()
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)
	memory, err := lockedmemory.New(&history{}, locker, lockedmemory.FixedKey("conversation-42"), nil)
	if err != nil {
		panic(err)
	}

	err = memory.Turn(ctx, func(ctx context.Context) error {
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

// A service that does not let a message wait for the answer to the one before it.
func ExampleLockedMemory_Turn_refuse() {
	ctx := context.Background()
	locker, err := memlock.New(&distlock.Options{Holder: "instance-1"})
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)
	memory, err := lockedmemory.New(&history{}, locker, lockedmemory.FixedKey("conversation-42"),
		&lockedmemory.Options{Busy: lockedmemory.Refuse})
	if err != nil {
		panic(err)
	}

	answer := func(question string, model func() string) string {
		answer := ""
		err := memory.Turn(ctx, func(ctx context.Context) error {
			answer = model()
			return memory.Save(ctx, question, answer)
		})
		var busy *distlock.BusyError
		switch {
		case errors.As(err, &busy): // busy.Held and busy.Waiters tell how busy
			return "One moment, please. I am still answering, on " + busy.Holder + "."
		case err != nil:
			return "Sorry: " + err.Error()
		}
		return answer
	}

	first := answer("Where is my parcel?", func() string {
		second := make(chan string) // comes while the model thinks
		go func() { second <- answer("Hello?", func() string { return "Hello!" }) }()
		fmt.Println(<-second)
		return "It arrives tomorrow."
	})
	fmt.Println(first)
	// Output:
	// One moment, please. I am still answering, on instance-1.
	// It arrives tomorrow.
}

// A chat service whose queue delivers a message twice.
func ExampleLockedMemory_Answer() {
	ctx := context.Background()
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)
	// For many instances, use redislock.New and redisstore.New.
	store, err := memstore.New(lockedmemory.SessionKey, sessionstore.JSON[string]{}, nil, nil)
	if err != nil {
		panic(err)
	}
	memory, err := lockedmemory.New(store, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		panic(err)
	}

	ctx = lockedmemory.WithSession(ctx, "conversation-42")
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
	// Output:
	// the model is asked, with 0 exchanges before
	// [tracking: in Oslo It is in Oslo.] <nil>
	// [tracking: in Oslo It is in Oslo.] <nil>
}

// The user asks for another answer to the last question.
func ExampleLockedMemory_Replace() {
	ctx := context.Background()
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)
	session := lockedmemory.FixedKey("conversation-42")
	store, err := memstore.New(session, sessionstore.JSON[string]{}, nil, nil)
	if err != nil {
		panic(err)
	}
	memory, err := lockedmemory.New(store, locker, session, nil)
	if err != nil {
		panic(err)
	}
	if err := memory.Save(ctx, "Tell me a joke.", "No."); err != nil {
		panic(err)
	}

	err = memory.Turn(ctx, func(ctx context.Context) error {
		last, err := memory.Last(ctx, 1)
		if err != nil || len(last) == 0 {
			return err
		}
		old := last[len(last)-1]
		exchange := old // the same place, turn ID and number
		exchange.Messages = []string{old.Input(), "A mutex walks into a bar."}
		return memory.Replace(ctx, old.Place, old.Place, exchange)
	})
	if err != nil {
		panic(err)
	}
	history, err := memory.Load(ctx, "")
	fmt.Println(strings.Join(history, " "), err)
	// Output: Tell me a joke. A mutex walks into a bar. <nil>
}
