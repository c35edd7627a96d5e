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

// The pages list the rights that the packages document, with which their own tests run.
func TestRights_asInThePackages(t *testing.T) {
	lock := testservers.DocumentedRights(t, filepath.Join(root, "distlock/redislock/doc.go"))
	store := testservers.DocumentedRights(t, filepath.Join(root, "lockedmemory/sessionstore/redisstore/doc.go"))
	for _, c := range []struct {
		place     Place
		namespace string
		want      []string
	}{
		{LockRights, "distlock", slices.Concat(lock.Needed, lock.Notified)},
		{StoreRights, "session", store.Needed},
		{ClusterRights, "", lock.Cluster},
		{ClusterRights, "", store.Cluster},
	} {
		var got []string
		for _, word := range command(t, c.place) {
			if strings.ContainsAny(word[:1], "+~&") {
				got = append(got, strings.Replace(word, c.namespace+":", "<namespace>:", 1))
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the page has %q, the package %q", c.place, got, c.want)
		}
	}
}

func TestRights_cluster(t *testing.T) {
	t.Parallel()
	c := testservers.StartCluster(t)
	for _, node := range c.Nodes() {
		for _, place := range []Place{LockRights, ClusterRights, StoreRights} {
			if _, err := node.Do(command(t, place)...); err != nil {
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

// command returns the words of the command for Redis at a place.
func command(t *testing.T, place Place) []string {
	t.Helper()
	return strings.Fields(place.Blocks(t, "redis")[0])
}
