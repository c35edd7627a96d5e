package pgstore_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// tables is all that the tables of the store show.
func (r *rig) tables() string {
	r.Helper()
	return r.do(`SELECT (SELECT string_agg(s::text, ' ') FROM session s),
		(SELECT string_agg(e::text, ' ') FROM exchange e), (SELECT string_agg(k::text, ' ') FROM known k),
		(SELECT string_agg(p::text, ' ') FROM pending p)`)
}

// After a Clear, a Replace, a Delete and trimming, no table has the text.
func TestErased_noTableHasText(t *testing.T) {
	t.Parallel()
	r := newRig(t, storedriver.Retention{MaxExchanges: 2})
	secret := strings.Repeat("secret", 1000)
	has := func() bool { return strings.Contains(r.tables(), hex.EncodeToString([]byte(secret))) }
	at := lockedmemory.Place{Fence: r.fence, N: 1}
	for name, erase := range map[string]func(){
		"clear": func() {
			r.is(storedriver.Done)(r.Clear(t.Context(), storedriver.Clear{Write: r.write("clear", r.fence, 2)}))
		},
		"delete": func() {
			r.is(storedriver.Done)(r.Clear(t.Context(), storedriver.Clear{Write: r.write("delete", r.fence, 2), Forget: true}))
		},
		"replace": func() {
			r.is(storedriver.Done)(r.Replace(t.Context(), storedriver.Replace{Write: r.write("replace", r.fence, 2), From: at, To: at,
				New: []storedriver.Entry{{Place: at, Messages: [][]byte{[]byte("summary")}}}}))
		},
		"trim": func() {
			for n := range int64(3) {
				r.saves("trim", r.fence+n+1, 1, "later")
			}
		},
	} {
		c := named(content(secret), "id of "+name)
		r.is(storedriver.Done)(r.Append(t.Context(), storedriver.Append{Write: r.write(name, r.fence, 1), Content: c}))
		if !has() {
			t.Fatalf("%s: the text is not there before", name)
		}
		if erase(); has() {
			t.Errorf("%s: a table has the text", name)
		}
	}
	if ids := r.do("SELECT count(*) FROM known k JOIN session s ON s.id = k.session WHERE s.name = 'delete'"); ids != "0" {
		t.Errorf("after a Delete, %s IDs", ids)
	}
}
