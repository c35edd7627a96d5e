package belugamemory

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// New fails where only a part of the schema, or nothing, is installed. The error names the call to run.
func TestNew_postgres_withoutSchema_isRefused(t *testing.T) {
	db := servers.SharedPostgres(t).NewDatabase(t)
	pool, err := pgxpool.New(t.Context(), db.URL())
	must(t, err)
	defer pool.Close()
	for _, missing := range []string{"pglock.Migrate", "pgstore.Migrate"} {
		_, err := New(config.ProviderConfig{BaseURL: db.URL()})
		mustHaveCode(t, err, core.ErrProviderDown, distlock.ErrRefused)
		contains(t, fmt.Sprint(err), "run "+missing)
		must(t, pglock.Migrate(t.Context(), pool, nil))
	}
}
