// Command shutdown is a service that answers messages, one at a time for each conversation. At its end on
// SIGTERM it releases all its locks, so the next instance does not wait for a TTL.
//
//	go run ./examples/recipes/shutdown -lock redis://localhost:6379
//	curl -d 'Hello' http://localhost:8080/conversations/42
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
)

var errStopping = errors.New("the service shuts down")

func main() {
	lock := flag.String("lock", cmp.Or(os.Getenv("LOCK_URL"), "redis://localhost:6379"), "URL of the lock service")
	listen := flag.String("listen", "localhost:8080", "address to listen on")
	grace := flag.Duration("grace", 10*time.Second, "how long messages under way may take after a SIGTERM")
	thinking := flag.Duration("thinking", 2*time.Second, "how long an answer takes")
	flag.Parse()
	if err := serve(*lock, *listen, *grace, *thinking); err != nil {
		log.Fatal(err)
	}
}

func serve(lockURL, address string, grace, thinking time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	locker, err := lockurl.Open(ctx, lockURL, &distlock.Options{Namespace: "chat", Wait: time.Minute})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return errors.Join(err, locker.Close(context.Background()))
	}
	log.Printf("listening on http://%s", listener.Addr())

	server := &http.Server{Handler: answers(ctx, locker, thinking)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
		log.Print("shutting down")
	case err = <-ended:
	}
	return errors.Join(err, shutDown(server, locker, grace))
}

// shutDown waits for the messages under way, for the time grace. Then it releases the locks that are held.
func shutDown(server *http.Server, locker *distlock.Locker, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Printf("not all messages were answered: %v", err)
	}

	// Close ends the contexts of running turns, ends each wait with ErrClosed, and releases every lease.
	// It has time of its own, because other instances wait for the leases. Then the last replies go out.
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(locker.Close(ctx), server.Shutdown(ctx))
}

// answers takes a context that ends at SIGTERM. Its end ends waits, but no turn that has begun.
func answers(stopping context.Context, locker *distlock.Locker, thinking time.Duration) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /conversations/{id}", func(w http.ResponseWriter, r *http.Request) {
		message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		detach := context.AfterFunc(stopping, cancel) // SIGTERM ends the wait, not the turn
		defer detach()                                // or a refused request stays in memory until SIGTERM
		err = locker.Do(ctx, r.PathValue("id"), func(ctx context.Context) error {
			if !detach() {
				return errStopping
			}
			log.Print("a turn begins")
			select { // load the history, ask the model, save
			case <-time.After(thinking):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		switch {
		case err == nil:
			fmt.Fprintf(w, "You said %q.\n", message)
		case errors.Is(err, distlock.ErrInvalidKey):
			http.Error(w, "no such conversation", http.StatusNotFound)
		default: // errStopping, a busy conversation, ErrUnavailable, ErrLost, ErrClosed: repeat the message
			log.Print(err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	})
	return mux
}
