// Lockctl shows operators the locks and the sessions of a service, and ends a lock by its token.
//
//	export LOCKCTL_URL='redis://localhost:6379/0?namespace=chat'
//	lockctl list --longest
//
// Each command reads a bounded number of records, and sends no command that blocks the server.
// docs/operations/lockctl.md shows the commands, their output, and the exit codes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(silent{}) // a failed command says the same once
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t := &tool{in: os.Stdin, out: os.Stdout, errs: os.Stderr}
	code := t.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// silent is a logger for go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
