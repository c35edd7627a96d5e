package belugarunner

import (
	"github.com/lookatitude/beluga-ai/v2/agent"

	"github.com/belugalock/belugalock/distlock"
)

// Backends is backends for the tests outside of the package.
var Backends = backends

// Over makes a Runner over a Locker, with an own SessionService.
func Over(a agent.Agent, locker *distlock.Locker, opts *Options) (*Runner, error) {
	r, err := newRunner(a, opts)
	if err == nil {
		err = r.lockWith(locker)
	}
	return r, err
}

// AwaitWorkers waits for the ends of all runs and of their workers.
func (r *Runner) AwaitWorkers() { r.open.Wait() }
