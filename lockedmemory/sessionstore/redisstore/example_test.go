package redisstore_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// Lock and store by URL.
func ExampleOpen() {
	server, err := miniredis.Run() // so that the example runs anywhere; a service has a Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()

	ctx := context.Background()
	session := lockedmemory.FixedKey("session-123")
	locker, store, err := redisstore.Open(ctx, "redis://"+server.Addr(), session, sessionstore.JSON[string]{}, nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx) // and the client
	memory, err := lockedmemory.New(store, locker, session, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(memory.Save(ctx, "Where is my parcel?", "It arrives tomorrow."))
	fmt.Println(memory.Load(ctx, ""))
	// Output:
	// <nil>
	// [Where is my parcel? It arrives tomorrow.] <nil>
}

// A store for many sessions. Lock and store have the same client and the same KeyFunc.
func ExampleNew() {
	server, err := miniredis.Run() // so that the example runs anywhere; a service has a Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()

	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	locker, err := redislock.New(client, nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(context.Background())

	type message struct{ Role, Text string }
	store, err := redisstore.New(client, lockedmemory.SessionKey, sessionstore.JSON[message]{}, nil, nil)
	if err != nil {
		panic(err)
	}
	memory, err := lockedmemory.New(store, locker, lockedmemory.SessionKey, nil)
	if err != nil {
		panic(err)
	}

	ctx := lockedmemory.WithSession(context.Background(), "session-123") // for each request
	question := message{"user", "Hello?"}
	answer, err := memory.Answer(ctx, "message-7", question, func(ctx context.Context) ([]message, error) {
		history, err := memory.Load(ctx, "")
		if err != nil {
			return nil, err
		}
		answer := fmt.Sprintf("I have seen %d messages before.", len(history)) // the model
		return []message{{"assistant", answer}}, nil
	})
	fmt.Println(answer, err)
	fmt.Println(memory.Load(ctx, ""))
	// Output:
	// [{assistant I have seen 0 messages before.}] <nil>
	// [{user Hello?} {assistant I have seen 0 messages before.}] <nil>
}
