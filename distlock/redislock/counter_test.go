package redislock_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	counterURL   = "REDISLOCK_TEST_COUNTER_URL"
	processes    = 20
	increments   = 50
	counterValue = "counter"
)

// Twenty processes increment one number: each reads it, sleeps and writes it. Without mutual
// exclusion most increments are lost.
func TestLocker_S1_twentyProcessesCount(t *testing.T) {
	if url := os.Getenv(counterURL); url != "" {
		count(t, url)
		return
	}
	t.Parallel()
	server := servers.SharedRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), counterURL+"="+server.URL())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("a counting process: %v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	got, err := server.Do("GET", counterValue)
	if err != nil || got != fmt.Sprint(processes*increments) {
		t.Errorf("counted to %s, %v; want %d", got, err, processes*increments)
	}
}

func count(t *testing.T, url string) {
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	l, err := redislock.New(client, &distlock.Options{Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(context.Background())
	for range increments {
		err := l.Do(t.Context(), "the counter", func(ctx context.Context) error {
			n, err := client.Get(ctx, counterValue).Int()
			if err != nil && !strings.Contains(err.Error(), "nil") {
				return err
			}
			time.Sleep(500 * time.Microsecond) // the window for lost increments
			return client.Set(ctx, counterValue, n+1, 0).Err()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
