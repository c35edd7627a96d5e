// Command slowcall fetches a report from a slow API. Two instances never fetch the same report at once.
// The lock is renewed during the call, so the TTL is short, and the wait for a crashed instance, too.
//
//	go run ./examples/recipes/slowcall -api http://localhost:9000/reports -report account-17-2026-11
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
)

func main() {
	lock := flag.String("lock", cmp.Or(os.Getenv("LOCK_URL"), "redis://localhost:6379"), "URL of the lock service")
	api := flag.String("api", "http://localhost:9000/reports", "URL of the slow API")
	name := flag.String("report", "account-17-2026-11", "the report to fetch")
	ttl := flag.Duration("ttl", 10*time.Second, "how long the lock outlives a crashed instance")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The longest wait covers the calls of several instances, not only one TTL.
	locker, err := lockurl.Open(ctx, *lock, &distlock.Options{Namespace: "reports", TTL: *ttl, Wait: 10 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	err = fetch(ctx, locker, *api, *name)
	if err := errors.Join(err, locker.Close(context.Background())); err != nil { // Close takes seconds at most
		log.Fatal(err) // distlock.ErrLost: call again, with the same key
	}
}

func fetch(ctx context.Context, locker *distlock.Locker, api, report string) error {
	return locker.Do(ctx, report, func(ctx context.Context) error {
		// Renewal needs no code. The context ends when the lease is lost, and that aborts the request.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // the bound for an API that never answers
		defer cancel()
		if err := call(ctx, api, report); err != nil {
			return err
		}
		lease, _ := locker.FromContext(ctx, report)
		// A Guard does not begin the step if the lease ended after the answer.
		return lease.Guard(ctx, func(ctx context.Context) error {
			// Your write, with this context.
			log.Printf("report %s: stored under token %d", report, lease.Fence())
			return nil
		})
	})
}

// call aborts at the end of ctx. The API may still finish an aborted call, so the request has the name
// of the report as a key. The key is the same in each repetition and in each instance.
func call(ctx context.Context, api, report string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, api, strings.NewReader(report))
	if err != nil {
		return err
	}
	request.Header.Set("Idempotency-Key", report)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API answers %s", response.Status)
	}
	return nil
}
