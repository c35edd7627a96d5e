// Tracing makes a span of each operation.
package main

import (
	"context"
	"log"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/tracing"
)

func main() {
	observer, err := tracing.New()
	if err != nil {
		log.Fatal(err)
	}
	locker, err := memlock.New(&distlock.Options{Observer: observer})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())
}
