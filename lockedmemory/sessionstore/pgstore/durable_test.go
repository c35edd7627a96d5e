package pgstore_test

import (
	"testing"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// What a call has written is durable before the answer, also where the database does not want that.
// A stronger setting stays.
func TestDurable_allWritesAndFirstReads(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"off": "on", "local": "on", "remote_apply": "remote_apply"} {
		r := newRig(t)
		r.do(`CREATE TABLE log (setting text);
			CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO belugalock.log VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
			CREATE CONSTRAINT TRIGGER log AFTER INSERT OR UPDATE ON session DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW EXECUTE FUNCTION log();
			ALTER DATABASE ` + r.db.Name() + ` SET synchronous_commit = ` + setting)
		r.reconnects()
		check := func(what string) {
			t.Helper()
			// The trigger fires at the commit. A release in the same transaction comes before.
			if got := r.do("SELECT string_agg(DISTINCT setting, ' ') FROM log"); got != want {
				t.Errorf("synchronous_commit = %s: %s: %q", setting, what, got)
			}
			r.do("DELETE FROM log")
		}
		place := lockedmemory.Place{Fence: r.fence, N: 1}
		r.saves("s", r.fence, 1, "first")
		check("the first Save")
		r.saves("s", r.fence, 2, "second")
		check("a Save")
		c := named(content("a message with an ID"), "id")
		r.is(storedriver.Done)(r.Append(t.Context(), storedriver.Append{Write: r.write("s", r.fence, 3), Content: c}))
		check("a SaveOnce")
		r.is(storedriver.Done)(r.shows("s", r.fence+1))
		check("a Load")
		r.is(storedriver.Done)(r.Replace(t.Context(), storedriver.Replace{Write: r.write("s", r.fence+1, 1), From: place, To: place}))
		check("a Replace")
		r.is(storedriver.Done)(r.Clear(t.Context(), storedriver.Clear{Write: r.write("s", r.fence+1, 2)}))
		check("a Clear")
		returned(r.Close(t.Context(), storedriver.CloseRequest{Session: "s", ID: storedriver.HashID("id"), By: storedriver.HashID("by")}))(t)
		check("a Close")
		r.puts("s", "put", "x")
		check("a Put")
		r.is(storedriver.Done)(r.Append(t.Context(), r.all("s", r.fence+1, 3, "a b", "c")))
		check("an Append of several IDs")
		_, _, err := r.Pending(t.Context(), r.write("s", r.fence+2, 1).Access)
		must(t, err)
		check("a Pending")
		lease := r.lease()
		r.is(storedriver.Done)(r.last(t.Context(), lease, 1))
		check("the last Save of a lease")
		if lease.Err() == nil {
			t.Error("the lease has not ended")
		}
	}
}
