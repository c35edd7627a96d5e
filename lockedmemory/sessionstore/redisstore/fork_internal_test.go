package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// A session that begins while a Fork stages its copy is not replaced.
func TestFork_O_begunBeforeSwap_refused(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: servers.SharedServer().Addr()})
	t.Cleanup(func() { _ = client.Close() })
	d, err := NewDriver(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	locker, err := redislock.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	session := fmt.Sprint("fork-", time.Now().UnixMicro())
	lease, err := locker.Acquire(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	s, token := d.(*sessions), lease.Fence()
	access := storedriver.Access{Session: session, Lease: lease, Fence: token, FirstAccess: true}
	log := s.keys(session).log
	p := newRestaging(storedriver.Replace{Write: storedriver.Write{Access: access, N: 1, Op: fmt.Sprintf("%032x", token)},
		New: []storedriver.Entry{{Place: lockedmemory.Place{Fence: token - 2, N: 1}, Messages: [][]byte{[]byte("copied")}}}})
	for p.step != swap {
		if v, done, err := s.proceed(t.Context(), p); done || err != nil {
			t.Fatalf("%+v, %t, %v", v, done, err)
		}
	}
	begun := &redis.XAddArgs{Stream: log, ID: fmt.Sprintf("%d-1000000", token-1), Values: []string{"op", "", "m", "own"}}
	if err := client.XAdd(t.Context(), begun).Err(); err != nil {
		t.Fatal(err)
	}
	if v, done, err := s.proceed(t.Context(), p); done || err != nil || p.step != begin {
		t.Fatalf("the swap: %+v, %t, %v", v, done, err)
	}
	if v, done, err := s.proceed(t.Context(), p); !done || err != nil || v.Outcome != storedriver.NotEmpty {
		t.Errorf("the next staging: %+v, %t, %v; want NotEmpty", v, done, err)
	}
	if n := client.XLen(t.Context(), log).Val(); n != 2 { // with the marker of the Fork's token
		t.Errorf("the log has %d entries", n)
	}
}
