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

// SessionKey is the lockedmemory.KeyFunc for contexts of Beluga: it tells sessions apart by core.GetTenant and core.GetSessionID. A context
// without a session is refused, there is no lock that all share; one without a tenant belongs to none.
//
// The key is the session's ID, after the tenant's and a colon if there is a tenant. In both, a colon is written as %3A and a percent sign as
// %25, so that no two sessions have one key.
func SessionKey(ctx context.Context) (string, error) { return keyOf(ctx, core.GetSessionID(ctx)) }

func keyOf(ctx context.Context, session string) (string, error) {
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

// oneSession is the KeyFunc of a session store that serves one session, whatever session the context names. Tenants stay apart even so.
func oneSession(id string) lockedmemory.KeyFunc {
	return func(ctx context.Context) (string, error) { return keyOf(ctx, id) }
}

// oneConversation is the KeyFunc of a memory that keeps one conversation, and knows of no tenants: they have its one lock.
func oneConversation(id string) lockedmemory.KeyFunc {
	return lockedmemory.FixedKey(escape.Replace(id))
}
