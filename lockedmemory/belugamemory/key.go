package belugamemory

import (
	"context"
	"errors"
	"strings"

	"github.com/lookatitude/beluga-ai/v2/core"
)

var errNoSession = errors.New("the context names no session: put its ID there with core.WithSessionID")

// SessionKey is the lockedmemory.KeyFunc for contexts of Beluga. It refuses a context without a
// session. The key is the session of core.GetSessionID. If core.GetTenant names a tenant, the
// tenant and a colon precede the session. In both IDs, a colon is written as %3A and a percent sign
// as %25, so that no two sessions have the same key.
func SessionKey(ctx context.Context) (string, error) {
	session := core.GetSessionID(ctx)
	if session == "" {
		return "", errNoSession
	}
	key := escape.Replace(session)
	if tenant := core.GetTenant(ctx); tenant != "" {
		key = escape.Replace(string(tenant)) + ":" + key
	}
	return key, nil
}

var escape = strings.NewReplacer("%", "%25", ":", "%3A")
