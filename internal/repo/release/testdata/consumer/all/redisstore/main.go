// Redisstore keeps a conversation in Redis.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

func main() {
	ctx := context.Background()
	session := lockedmemory.FixedKey("session-123")
	locker, store, err := redisstore.Open(ctx, "redis://localhost:6379", session, sessionstore.JSON[string]{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)
	memory, err := lockedmemory.New(store, locker, session, nil)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(memory.Save(ctx, "Where is my parcel?", "It arrives tomorrow."))
}
