package redislock

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

var name = driver.Name{Namespace: "n", Key: "k"}

// Close closes the driver's connections. The caller's client stays open.
func TestService_closesItsConnections(t *testing.T) {
	options := onNode(t)
	options.ClientName = strings.ReplaceAll(t.Name(), "/", "-")
	s := open(t, options)
	connections := func() int {
		list, err := servers.SharedServer().Do("CLIENT", "LIST")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(list, "name="+options.ClientName+" ")
	}
	if err := s.client.Ping(t.Context()).Err(); err != nil || connections() != 1 {
		t.Fatalf("%v, %d connections", err, connections())
	}
	if _, err := s.Inspect(t.Context(), name); err != nil || connections() != 2 {
		t.Errorf("after a call: %v, %d connections, want 2", err, connections())
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	servers.Await(t, 10*time.Second, "the end of the driver's connection", func() bool { return connections() == 1 })
	if err := s.client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client: %v", err)
	}
}

func TestService_C_unknownSlots_error(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, io.EOF }, MaxRedirects: -1,
	})
	defer client.Close()
	d, err := NewDriver(client)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: "o"}); !errors.Is(err, io.EOF) {
		t.Errorf("Release: %v", err)
	}
}
