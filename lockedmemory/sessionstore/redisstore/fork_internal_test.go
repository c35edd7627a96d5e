package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	s, token := d.(*service), time.Now().UnixMicro()
	session := fmt.Sprint("fork-", token)
	access := storedriver.Access{Session: session, Fence: token, FirstAccess: true}
	keys, args := []string{s.keys(session).log, s.keys(session).mark, s.keys(session).mark, s.keys(session).ids,
		s.keys(session).stage}, []any{tokens(access, false), 0, 0, storedriver.KeepEmpty.Milliseconds(), fmt.Sprintf("%d %d", s.keep.MaxExchanges, s.keep.MaxAge.Microseconds())}
	p := newReplacing(storedriver.Replace{Write: storedriver.Write{Access: access, N: 1, Op: fmt.Sprintf("%032x", token)},
		New: []storedriver.Entry{{Place: lockedmemory.Place{Fence: token - 2, N: 1}, Messages: [][]byte{[]byte("copied")}}}}, keys, args)
	for p.step != swap {
		if v, done, err := s.proceed(t.Context(), p); done || err != nil {
			t.Fatalf("%+v, %t, %v", v, done, err)
		}
	}
	begun := &redis.XAddArgs{Stream: keys[0], ID: fmt.Sprintf("%d-1000000", token-1), Values: []string{"op", "", "m", "own"}}
	if err := client.XAdd(t.Context(), begun).Err(); err != nil {
		t.Fatal(err)
	}
	if v, done, err := s.proceed(t.Context(), p); done || err != nil || p.step != begin {
		t.Fatalf("the swap: %+v, %t, %v", v, done, err)
	}
	if v, done, err := s.proceed(t.Context(), p); !done || err != nil || v.Outcome != storedriver.Range {
		t.Errorf("the next staging: %+v, %t, %v; want Range", v, done, err)
	}
	if n := client.XLen(t.Context(), keys[0]).Val(); n != 2 { // with the marker of the Fork's token
		t.Errorf("the log has %d entries", n)
	}
}
