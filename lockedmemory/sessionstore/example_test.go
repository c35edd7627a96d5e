package sessionstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// Text is a message of the examples.
type Text struct{ ID, Role, Text string }

// open makes a store of one session and puts the lock in front of it. For Redis, use redisstore.Open.
func open() (store *sessionstore.Store[Text, Text], memory *lockedmemory.LockedMemory[Text, Text], closeAll func()) {
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	session := lockedmemory.FixedKey("session-123")
	store, err = memstore.New(session, sessionstore.JSON[Text]{TextOf: func(m Text) string { return m.Text }}, nil, nil)
	if err != nil {
		panic(err)
	}
	memory, err = lockedmemory.New(store, locker, session, nil)
	if err != nil {
		panic(err)
	}
	return store, memory, func() { _ = locker.Close(context.Background()) }
}

// Answer is a turn of an agent, from loading the history to storing the answer. A message that is repeated
// under its ID gets the stored answer.
func Example() {
	_, memory, closeAll := open()
	defer closeAll()

	ctx := context.Background()
	for _, id := range []string{"message-1", "message-2", "message-2"} {
		question := Text{id, "user", "Hello?"}
		answer, err := memory.Answer(ctx, id, question, func(ctx context.Context) ([]Text, error) {
			history, err := memory.Load(ctx, "")
			if err != nil {
				return nil, err
			}
			// The model:
			return []Text{{id, "assistant", fmt.Sprintf("I have seen %d messages before.", len(history))}}, nil
		})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(id, answer[0].Text)
	}
	history, err := memory.Load(ctx, "")
	fmt.Println(len(history), "messages", err)
	// Output:
	// message-1 I have seen 0 messages before.
	// message-2 I have seen 2 messages before.
	// message-2 I have seen 2 messages before.
	// 4 messages <nil>
}

// A SaveOnce that is repeated is stored once. With other messages, nothing is stored.
func ExampleStore_SaveOnce() {
	_, memory, closeAll := open()
	defer closeAll()

	ctx := context.Background()
	question := Text{Role: "user", Text: "How far is the moon?"}
	fmt.Println(memory.SaveOnce(ctx, "message-1", question, Text{Role: "assistant", Text: "384,400 km."}))
	fmt.Println(memory.SaveOnce(ctx, "message-1", question, Text{Role: "assistant", Text: "384,400 km."}))

	err := memory.SaveOnce(ctx, "message-1", question, Text{Role: "assistant", Text: "Far."})
	fmt.Println(errors.Is(err, sessionstore.ErrIDConflict))

	history, err := memory.Load(ctx, "")
	fmt.Println(len(history), err)
	// Output:
	// <nil>
	// <nil>
	// true
	// 2 <nil>
}

// A query restricts the history to Saves with a message that has all of its words.
func ExampleStore_Load() {
	_, memory, closeAll := open()
	defer closeAll()
	ctx := context.Background()

	for _, pair := range [][2]string{{"How far is the moon?", "384,400 km."}, {"And Mars?", "That changes."},
		{"Is the Moon round?", "Nearly."}} {
		if err := memory.Save(ctx, Text{Text: pair[0]}, Text{Text: pair[1]}); err != nil {
			fmt.Println(err)
		}
	}
	found, err := memory.Load(ctx, "the moon")
	for _, m := range found {
		fmt.Println(m.Text)
	}
	fmt.Println(err)
	// Output:
	// How far is the moon?
	// 384,400 km.
	// Is the Moon round?
	// Nearly.
	// <nil>
}

// Forward reads a history that is too long to be held at once, and yields the ID of each exchange.
func ExampleStore_Forward() {
	store, memory, closeAll := open()
	defer closeAll()
	ctx := context.Background()

	for _, id := range []string{"message-1", "message-2"} {
		if err := memory.SaveOnce(ctx, id, Text{Text: "Hello?"}, Text{Text: "Hello!"}); err != nil {
			fmt.Println(err)
		}
	}
	for exchange, err := range store.Forward(ctx, lockedmemory.Place{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(exchange.ID, exchange.Input().Text, exchange.Output().Text)
	}
	// Output:
	// message-1 Hello? Hello!
	// message-2 Hello? Hello!
}

// A job visits each session that has an exchange, and does what a request for the session would do.
func ExampleStore_Sessions() {
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(context.Background())
	store, err := memstore.New(lockedmemory.SessionKey, sessionstore.JSON[Text]{}, nil, nil)
	if err != nil {
		panic(err)
	}
	memory, err := lockedmemory.New(store, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		panic(err)
	}
	for _, session := range []string{"session-1", "session-2"} {
		ctx := lockedmemory.WithSession(context.Background(), session)
		if err := memory.Save(ctx, Text{Text: "Hello?"}, Text{Text: "Hello!"}); err != nil {
			fmt.Println(err)
		}
	}

	advice, err := store.Ping(context.Background())
	fmt.Println(advice, err)
	for session, err := range store.Sessions(context.Background()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		last, err := store.Last(lockedmemory.WithSession(context.Background(), session), 1)
		fmt.Println(session, len(last), err)
	}
	// Unordered output:
	// [] <nil>
	// session-1 1 <nil>
	// session-2 1 <nil>
}

// Payload is a message with the JSON of another service.
type Payload struct{ Body json.RawMessage }

// Unchecked stores any JSON, as a program without this library may.
type Unchecked struct{ sessionstore.JSON[Payload] }

func (Unchecked) Encode(m Payload) ([]byte, error) { return json.Marshal(m) }

// JSON refuses text that is not UTF-8, because models refuse it. If an entry that was stored otherwise
// cannot be read, its place is where Replace mends it.
func ExampleEntryError() {
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(context.Background())
	session := lockedmemory.FixedKey("session-123")
	driver, err := memstore.NewDriver(nil)
	if err != nil {
		panic(err)
	}
	memoryOf := func(codec sessionstore.Codec[Payload, Payload]) *lockedmemory.LockedMemory[Payload, Payload] {
		store, err := sessionstore.New(driver, session, codec, nil)
		if err != nil {
			panic(err)
		}
		memory, err := lockedmemory.New(store, locker, session, nil)
		if err != nil {
			panic(err)
		}
		return memory
	}
	unchecked, memory := memoryOf(Unchecked{}), memoryOf(sessionstore.JSON[Payload]{})

	ctx := context.Background()
	question, answer := Payload{json.RawMessage("\"smile \xff\"")}, Payload{json.RawMessage(`"\ud83d\ude00"`)}
	fmt.Println(errors.Is(memory.Save(ctx, question, answer), sessionstore.ErrCodec))
	fmt.Println(unchecked.Save(ctx, question, answer))

	err = memory.Turn(ctx, func(ctx context.Context) error {
		_, err := memory.Load(ctx, "")
		var broken *sessionstore.EntryError
		if !errors.As(err, &broken) {
			return err
		}
		question.Body = json.RawMessage(`"smile"`)
		return memory.Replace(ctx, broken.Place, broken.Place,
			lockedmemory.Exchange[Payload]{Messages: []Payload{question, answer}, Place: broken.Place})
	})
	fmt.Println(err)
	history, err := memory.Load(ctx, "")
	fmt.Printf("%s %v\n", history, err)
	// Output:
	// true
	// <nil>
	// <nil>
	// [{"smile"} {"\ud83d\ude00"}] <nil>
}

// Lines is a codec for messages that are plain text.
type Lines struct{}

func (Lines) Encode(m string) ([]byte, error) {
	if strings.Contains(m, "\n") {
		return nil, errors.New("a message is one line")
	}
	return []byte(m + "\n"), nil
}

func (Lines) Decode(text []byte) (string, error) {
	m, ok := strings.CutSuffix(string(text), "\n")
	if !ok || strings.Contains(m, "\n") {
		return "", errors.New("this is not one line")
	}
	return m, nil
}

func (Lines) Text(m string) string     { return m }
func (Lines) Document(m string) string { return m }

func ExampleCodec() {
	store, err := memstore.New(lockedmemory.FixedKey("session-123"), Lines{}, nil, nil)
	fmt.Printf("%T %v\n", store, err)
	// Output: *sessionstore.Store[string,string] <nil>
}

// Several stores share a driver. Packages redisstore and pgstore have a New that makes both.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	driver, err := redisstore.NewDriver(client, nil)
	if err != nil {
		panic(err)
	}
	store, err := sessionstore.New(driver, lockedmemory.SessionKey, sessionstore.JSON[Text]{}, nil)
	fmt.Println(store != nil, err)
	// Output: true <nil>
}
