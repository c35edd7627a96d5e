package belugamemory

import "github.com/lookatitude/beluga-ai/v2/core"

// ErrOutcomeUnknown is the code of a Save or a run's Update of unknown outcome. It is not
// retryable, because the exchange could be stored twice. A Clear, and a Save with a turn ID (see
// lockedmemory.WithTurnID), can be repeated safely. They fail with core.ErrProviderDown.
const ErrOutcomeUnknown core.ErrorCode = "outcome_unknown"
