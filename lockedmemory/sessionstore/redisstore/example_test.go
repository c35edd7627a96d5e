package redisstore_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"

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
