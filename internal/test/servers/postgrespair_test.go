package servers

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// What the primary acknowledges while the standby is cut off is lost by a promotion.
func TestStandby_promoted_lacksLateCommits(t *testing.T) {
	t.Parallel()
	p := StartPostgresPair(t, false)
	mustQuery(t, p.Primary, "", "CREATE TABLE t (x text); INSERT INTO t VALUES ('kept')")
	p.AwaitStandby()
	mustQuery(t, p.Standby, "kept", "SELECT x FROM t")
	var refused *pgconn.PgError
	if _, err := p.Standby.Do("INSERT INTO t VALUES ('refused')"); !errors.As(err, &refused) || refused.Code != "25006" {
		t.Errorf("a write to the standby: %v, want 25006", err)
	}
	p.Detach()
	mustQuery(t, p.Primary, "", "INSERT INTO t VALUES ('lost')")
	p.Primary.Kill()
	p.Promote()
	mustQuery(t, p.Standby, "", "INSERT INTO t VALUES ('new')")
	mustQuery(t, p.Standby, "kept\nnew", "SELECT x FROM t")
	p.Standby.Restart()
	mustQuery(t, p.Standby, "kept\nnew", "SELECT x FROM t")
}
