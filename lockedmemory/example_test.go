package lockedmemory_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
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
		before, err := memory.Load(ctx, "") // inside, so that nobody adds to it before Save
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
