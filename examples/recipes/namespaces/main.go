// Command namespaces is a job of one of several services that share a Redis. The namespace of a service
// begins all its keys, so two services may use the same lock name.
//
//	go run ./examples/recipes/namespaces -service billing &
//	go run ./examples/recipes/namespaces -service reports    # runs at the same time
//	go run ./examples/recipes/namespaces -service billing    # is busy
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
)

func main() {
	lock := flag.String("lock", cmp.Or(os.Getenv("LOCK_URL"), "redis://localhost:6379"), "URL of the lock service")
	service := flag.String("service", "billing", "name of the service, its namespace")
	work := flag.Duration("work", 5*time.Second, "how long the job takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *lock, *service, *work); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, lockURL, service string, work time.Duration) error {
	// The keys in Redis are billing:{nightly}:lock and reports:{nightly}:lock. Set the namespace in the
	// program or in the URL (?namespace=billing), the same in every instance of the service.
	locker, err := lockurl.Open(ctx, lockURL, &distlock.Options{Namespace: service})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			log.Print(err)
		}
	}()

	err = locker.TryDo(ctx, "nightly", func(ctx context.Context) error {
		log.Printf("%s: the job begins", service)
		select {
		case <-time.After(work): // the job
			log.Printf("%s: the job is done", service)
			return nil
		case <-ctx.Done(): // the process ends, or the lease is lost
			return context.Cause(ctx)
		}
	})
	if errors.Is(err, distlock.ErrNotAcquired) { // another instance of this service runs the job
		log.Printf("%s: busy: %v", service, err)
		return nil
	}
	return err
}
