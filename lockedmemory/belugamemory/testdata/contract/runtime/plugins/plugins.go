// Package plugins holds plugins of a Runner.
package plugins

import (
	"context"
	"sync/atomic"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"
)

type retries struct {
	most int64
	done atomic.Int64
}

// NewRetryAndReflect hides retryable errors, maxRetries of all sessions. The Runner does not retry.
func NewRetryAndReflect(maxRetries int) runtime.Plugin { return &retries{most: int64(maxRetries)} }

func (*retries) Name() string { return "retry_reflect" }

func (*retries) BeforeTurn(_ context.Context, _ *runtime.Session, input schema.Message) (schema.Message, error) {
	return input, nil
}

func (*retries) AfterTurn(_ context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	return events, nil
}

func (r *retries) OnError(_ context.Context, err error) error {
	if core.IsRetryable(err) && r.done.Add(1) <= r.most {
		return nil
	}
	return err
}
