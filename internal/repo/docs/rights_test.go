package docs

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
)

const (
	rightsOfLock    = "### The lock service is unavailable"
	rightsOfStore   = "### Rights for sessions"
	rightsInCluster = "### Keys, slots and rights"
)

// The guide lists the rights that the packages document, with which their own tests run.
func TestGuide_rightsAreThoseOfThePackages(t *testing.T) {
	lock := testservers.DocumentedRights(t, filepath.Join(root, "distlock/redislock/doc.go"))
	store := testservers.DocumentedRights(t, filepath.Join(root, "lockedmemory/sessionstore/redisstore/doc.go"))
	for _, c := range []struct {
		heading, namespace string
		want               []string
	}{
		{rightsOfLock, "distlock", slices.Concat(lock.Needed, lock.Notified)},
		{rightsOfStore, "session", store.Needed},
		{rightsInCluster, "", lock.Cluster},
		{rightsInCluster, "", store.Cluster},
	} {
		var got []string
		for _, word := range command(t, c.heading) {
			if strings.ContainsAny(word[:1], "+~&") {
				got = append(got, strings.Replace(word, c.namespace+":", "<namespace>:", 1))
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the guide has %q, the package %q", c.heading, got, c.want)
		}
	}
}

func TestGuide_rightsInACluster(t *testing.T) {
	t.Parallel()
	c := testservers.StartCluster(t)
	for _, node := range c.Nodes() {
		for _, heading := range []string{rightsOfLock, rightsInCluster, rightsOfStore} {
			if _, err := node.Do(command(t, heading)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	client, err := redislock.ParseURL(strings.Replace(c.URL(), "://", "://agent:password@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := newStored(t, client)
	err = s.turn(t, func(ctx context.Context) error {
		return errors.Join(s.memory.Save(ctx, "q", "a"), s.memory.Clear(ctx))
	})
	if err != nil {
		t.Error(err)
	}
	for _, node := range c.Nodes() {
		if refused := testservers.RefusedToUsers(t, node); refused != "" {
			t.Errorf("a node has refused %s", refused)
		}
	}
}

// command returns the words of the command below a heading of the guide.
func command(t *testing.T, heading string) []string {
	t.Helper()
	return strings.Fields(ReadPage(t, "docs/guide.md").section(t, heading, "redis")[0].text)
}
