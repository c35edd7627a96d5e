package sessionstore_test

import (
	"context"
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

// An entry that another codec has written cannot be read. Its place is where Replace mends it.
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
	memoryOf := func(codec sessionstore.Codec[string, string]) *lockedmemory.LockedMemory[string, string] {
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
	other, memory := memoryOf(sessionstore.JSON[string]{}), memoryOf(Lines{})

	ctx := context.Background()
	fmt.Println(other.Save(ctx, "Hello?", "Hello!"))
	_, err = memory.Load(ctx, "")
	var broken *sessionstore.EntryError
	if errors.As(err, &broken) {
		fmt.Println(memory.Replace(ctx, broken.Place, broken.Place,
			lockedmemory.Exchange[string]{Messages: []string{"Hello?", "Hello!"}, Place: broken.Place}))
	}
	fmt.Println(memory.Load(ctx, ""))
	// Output:
	// <nil>
	// <nil>
	// [Hello? Hello!] <nil>
}

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
