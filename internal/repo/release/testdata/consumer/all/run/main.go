// Run holds a lock in this process, and prints what it holds.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/belugalock/belugalock/distlock/lockurl"
)

func main() {
	ctx := context.Background()
	locker, err := lockurl.Open(ctx, "mem://", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)
	err = locker.Do(ctx, "orders", func(ctx context.Context) error {
		lease, held := locker.FromContext(ctx, "orders")
		fmt.Println("held:", held, "fenced:", lease.Fence() > 0)
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
