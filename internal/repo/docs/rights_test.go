package docs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// The pages list the rights that the packages document, with which their own tests run.
func TestRights_asInThePackages(t *testing.T) {
	t.Parallel()
	documented := func(dir string) servers.Rights {
		return servers.DocumentedRights(t, filepath.Join(root, dir, "doc.go"))
	}
	lock, quorum := documented("distlock/redislock"), documented("distlock/redlock")
	store, adk := documented("lockedmemory/sessionstore/redisstore"), documented("adksession")
	for _, c := range []struct {
		heading   string
		namespace string
		want      []string
	}{
		{"## Rights for locks", "distlock", slices.Concat(lock.Needed, lock.Notified)},
		{"## Rights on a quorum", "distlock", slices.Concat(quorum.Needed, quorum.Notified)},
		{"## Rights for sessions", "session", store.Needed},
		{"## Rights for sessions of ADK", "adk", adk.Needed},
		{"## Rights in a Cluster", "", lock.Cluster},
		{"## Rights in a Cluster", "", store.Cluster},
	} {
		var got []string
		for word := range strings.FieldsSeq(Place{LockRights.Page, c.heading}.Blocks(t, "redis")[0]) {
			if strings.ContainsAny(word[:1], "+~&") {
				got = append(got, strings.Replace(word, c.namespace+":", "<namespace>:", 1))
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the page has %q, the package %q", c.heading, got, c.want)
		}
	}
}
