// Beluga is a chat service on a Runner of Beluga AI: a balancer in front of two instances, each a
// process, that share the chats. See usage.txt and README.md. Begin to read at service.go.
package main

import (
	"context"
	_ "embed"
	"net/http"

	"github.com/belugalock/belugalock/examples/internal/instances"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

//go:embed usage.txt
var usage string

func main() { instances.Main(instances.Program{Usage: usage, Open: open, Tour: tour}) }

// open makes an instance.
func open(s instances.Settings) (http.Handler, func(context.Context) error, error) {
	opts := belugarunner.WithStream()
	opts.TTL, opts.Observer = s.TTL, s.Observer
	opts.Interruptible, opts.KeepPartial = true, true // a stop takes effect at once, and keeps the text until then
	runner, err := belugarunner.New(newAgent(s.Delay), s.Server, opts)
	if err != nil {
		return nil, nil, err
	}
	return (&service{runner}).handler(), runner.Shutdown, nil
}
