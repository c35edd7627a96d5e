package belugamemory

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

var errNoSession = errors.New("the context names no session: put its ID there with core.WithSessionID")

// SessionKey is the lockedmemory.KeyFunc for contexts of Beluga: it tells sessions apart by
// core.GetTenant and core.GetSessionID. A context without a session is refused. The key is the ID
// of the session, after that of the tenant and a colon if there is a tenant. In both IDs, a colon
// is written as %3A and a percent sign as %25, so that no two sessions have one key.
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

// keyFor asks key for the session of ctx, as lockedmemory does.
func keyFor(ctx context.Context, key lockedmemory.KeyFunc) (string, error) {
	k, err := key(ctx)
	if err == nil && k == "" {
		err = errNoSession
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", distlock.ErrInvalidKey, err)
	}
	return k, nil
}

var escape = strings.NewReplacer("%", "%25", ":", "%3A")

// oneSession is the KeyFunc of a session store with one session for each tenant.
func oneSession(id string) lockedmemory.KeyFunc {
	return func(ctx context.Context) (string, error) { return SessionKey(core.WithSessionID(ctx, id)) }
}

// oneConversation is the KeyFunc of a memory that keeps one conversation for all tenants.
func oneConversation(id string) lockedmemory.KeyFunc {
	return lockedmemory.FixedKey(escape.Replace(id))
}
