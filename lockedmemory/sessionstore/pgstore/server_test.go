package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// isTemporary checks that a server that cannot write refuses each call for now. It never says no.
func (r *rig) isTemporary(session string) {
	r.Helper()
	_, err := r.Append(r.Context(), storedriver.Append{Write: r.write(session, r.fence, 1), Content: content("x")})
	_, err2 := r.Append(r.Context(), storedriver.Append{Write: r.write(session, r.fence, 2), Content: content("x")})
	_, err3 := r.Clear(r.Context(), storedriver.Clear{Write: r.write(session, r.fence, 3)})
	_, err4 := r.shows(session, r.fence)
	_, err5 := r.Close(r.Context(), storedriver.CloseRequest{Session: session, Below: 1})
	_, err6 := r.Append(r.Context(), r.all(session, r.fence, 4, "a b", ""))
	_, err7 := r.Put(r.Context(), storedriver.Put{Session: session, ID: "id"})
	_, _, err8 := r.Pending(r.Context(), r.write(session, r.fence, 1).Access)
	_, _, err9 := r.Pending(r.Context(), storedriver.Access{Session: session})
	_, _, err10 := r.Inboxes(r.Context(), "")
	for what, err := range map[string]error{"first Save": err, "Save": err2, "Clear": err3, "Load": err4, "Close": err5,
		"Append of several": err6, "Put": err7, "Pending of a lease": err8, "Pending": err9, "Inboxes": err10} {
		if !errors.Is(err, driver.ErrTemporary) || driver.MayHaveEffect(err) {
			r.Errorf("%s: %v", what, err)
		}
	}
}

// A standby may lack acknowledged Saves, so it answers no read either.
func TestStandby_temporary(t *testing.T) {
	t.Parallel()
	pair := servers.StartPostgresPair(t, false)
	r := rigOf(t, pair.Primary.NewDatabase(t))
	r.saves("s", r.fence+10, 1, "x")
	pair.AwaitStandby()
	r.Driver = returned(pgstore.NewDriver(connect(t, pair.Standby.URL(r.db.Name())), nil))(t)
	r.isTemporary("s")
	_, err := r.Read(t.Context(), storedriver.Read{Access: storedriver.Access{Session: "s"}, Limit: 1})
	_, _, err2 := r.Sessions(t.Context(), "")
	if !errors.Is(err, driver.ErrTemporary) || !errors.Is(err2, driver.ErrTemporary) {
		t.Errorf("Read: %v; Sessions: %v", err, err2)
	}
}

// In synchronous replication, a Save whose wait for the standby is cancelled has an unknown
// outcome, also in a role that hides warnings. ⚑ So has
// what finds it stored, and stores nothing.
func TestStandby_commitCancelled_unknown(t *testing.T) {
	t.Parallel()
	pair := servers.StartPostgresPair(t, true)
	r := rigOf(t, pair.Primary.NewDatabase(t))
	r.saves("s", r.fence, 1, "x")
	r.do("ALTER DATABASE " + r.db.Name() + " SET client_min_messages = error")
	locks := returned(pglock.OpenDriver(r.db.URL()))(t)
	defer locks.Close()
	r.Driver = returned(pgstore.NewColocatedDriver(locks, nil))(t)
	r.saves("s", r.fence, 2, "y")
	pair.Detach()
	first := r.write("s", r.fence+1, 4)
	first.FirstAccess = true
	append := func(w storedriver.Write, c storedriver.Content) func() error {
		return func() error {
			_, err := r.Append(context.Background(), storedriver.Append{Write: w, Content: c})
			return err
		}
	}
	closes := func() error {
		_, err := r.Close(context.Background(), storedriver.CloseRequest{Session: "s", ID: storedriver.HashID("closed")})
		return err
	}
	all := func() error {
		_, err := r.Append(context.Background(), r.all("s", r.fence+2, 1, "a b", ""))
		return err
	}
	conflicts := func() error {
		_, err := r.Append(context.Background(), r.all("s", r.fence+2, 2, "a c", ""))
		return err
	}
	puts := func() error {
		_, err := r.Put(context.Background(), storedriver.Put{Session: "s", ID: "put"})
		return err
	}
	lists := func() error {
		_, _, err := r.Pending(context.Background(), r.write("s", r.fence+3, 1).Access)
		return err
	}
	for _, c := range []struct {
		what string
		call func() error
	}{
		{"a Save", append(r.write("s", r.fence, 3), content("z"))},
		{"its repetition", append(r.write("s", r.fence, 3), content("z"))},
		{"a first access", append(first, content("z"))},
		{"its repetition", append(first, content("z"))},
		{"a Save with an ID", append(r.write("s", r.fence+1, 5), named(content("the message with an ID"), "id"))},
		{"another with that ID", append(r.write("s", r.fence+1, 6), named(content("the message with an ID"), "id"))},
		{"a Close", closes},
		{"its repetition", closes},
		{"one of several", all},
		{"its repetition", all},
		{"one with another ID", conflicts},
		{"a Put", puts},
		{"its repetition", puts},
		{"a list under a lease", lists},
		{"a look for the ID", func() error {
			_, err := r.Read(context.Background(), storedriver.Read{Access: storedriver.Access{Session: "s"}, ID: "id", Limit: 1})
			return err
		}},
	} {
		errs := make(chan error, 1)
		go func() { errs <- c.call() }()
		servers.Await(t, time.Minute, c.what+" that waits", func() bool {
			return len(errs) > 0 ||
				r.do("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
		})
		if err := <-errs; !driver.MayHaveEffect(err) {
			t.Errorf("%s: %v; want an unknown outcome", c.what, err)
		}
	}
}

// Ping advises on the settings that lose data or keep erased data.
func TestPing_advice(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "autovacuum=off", "full_page_writes=off")
	d := rigOf(t, server.NewDatabase(t)).Driver
	for driver, words := range map[storedriver.Driver][]string{
		d:                {"autovacuum", "fsync", "full_page_writes"},
		newRig(t).Driver: {"fsync"}, // off in all servers of tests
	} {
		advice, err := driver.Ping(t.Context())
		if err != nil || len(advice) != len(words) {
			t.Errorf("%q, %v; want %q", advice, err, words)
			continue
		}
		for i, word := range words {
			if !strings.Contains(advice[i], "set "+word+" of") {
				t.Errorf("%q; want %s", advice[i], word)
			}
		}
	}
	server.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := d.Ping(ctx); err == nil {
		t.Error("Ping of a dead server")
	}
}
