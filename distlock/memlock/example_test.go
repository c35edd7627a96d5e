package memlock_test

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock/memlock"
)

func ExampleNew() {
	ctx := context.Background()
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)
	fmt.Println(locker.Do(ctx, "conversation-42", func(context.Context) error { return nil }))
	// Output: <nil>
}
