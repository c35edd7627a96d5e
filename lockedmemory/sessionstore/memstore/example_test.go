package memstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

// Two instances share a driver, as two processes share a Redis. The first instance is paused for longer
// than its lease, and then saves without a look at its lease. The store refuses the Save.
func ExampleNewDriver() {
	ctx := context.Background()
	locks := memlock.NewDriver()
	sessions, err := memstore.NewDriver(nil)
	if err != nil {
		panic(err)
	}
	session := lockedmemory.FixedKey("session-123")
	instance := func() (*sessionstore.Store[string, string], *distlock.Locker,
		*lockedmemory.LockedMemory[string, string]) {
		locker, err := distlock.New(locks, nil)
		if err != nil {
			panic(err)
		}
		store, err := sessionstore.New(sessions, session, sessionstore.JSON[string]{}, nil)
		if err != nil {
			panic(err)
		}
		memory, err := lockedmemory.New(store, locker, session, nil)
		if err != nil {
			panic(err)
		}
		return store, locker, memory
	}
	store, one, first := instance()
	_, two, second := instance()
	defer one.Close(ctx)
	defer two.Close(ctx)

	var paused context.Context
	err = first.Turn(ctx, func(ctx context.Context) error {
		paused = context.WithoutCancel(ctx)
		return nil
	})
	fmt.Println(err)
	err = second.Turn(ctx, func(ctx context.Context) error {
		_, err := second.Load(ctx, "")
		if err != nil {
			return err
		}
		late := store.Save(paused, "Hello?", "Hello!")
		fmt.Println(errors.Is(late, distlock.ErrLost))
		return second.Save(ctx, "Hello?", "Good morning!")
	})
	fmt.Println(err)
	fmt.Println(second.Load(ctx, ""))
	// Output:
	// <nil>
	// true
	// <nil>
	// [Hello? Good morning!] <nil>
}
