package redisstore_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// ids is a session whose driver writes under rising tokens.
type ids struct {
	*testing.T
	client *redis.Client
	writer func(session string, fence int64) (driver.Driver, driver.Access)
	fence  int64
}

func newIDs(t *testing.T) *ids {
	client := redis.NewClient(&redis.Options{Addr: testservers.StartRedis(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	markKnown(t, client)
	return &ids{T: t, client: client, writer: driverOf(t, client, driver.Retention{})}
}

const idsKey, logKey = "session:{s}:ids", "session:{s}:log"

// exchange is the next one that a new lease stores under an ID.
func (s *ids) exchange(id string, number int) driver.Append {
	s.fence++
	_, access := s.writer("s", s.fence)
	return driver.Append{
		Write:   driver.Write{Access: access, N: 3, Op: fmt.Sprintf("%032x", s.fence)},
		Content: driver.Content{Messages: [][]byte{{'m'}}, ID: id, Number: number, Digest: [16]byte{'d'}},
	}
}

func (s *ids) append(a driver.Append) (driver.Verdict, error) {
	d, _ := s.writer("s", 1)
	return d.Append(s.Context(), a)
}

// places returns the places of the exchanges of an ID.
func (s *ids) places(id string) (stored int, at []string) {
	s.Helper()
	d, _ := s.writer("s", 1)
	page, err := d.Read(s.Context(), driver.Read{Session: "s", ID: id, Named: true, Limit: 10})
	must(s.T, err)
	for _, e := range page.Entries {
		at = append(at, e.Place.String())
	}
	return page.Stored, at
}

func fieldOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return string(sum[:16])
}

func TestTurnIDs_storedForm(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	for _, a := range []driver.Append{s.exchange("id", 1), s.exchange("id", 3)} {
		v, err := s.append(a)
		if must(t, err); v.Outcome != driver.Done {
			t.Fatal(v)
		}
	}
	record := s.client.HGet(t.Context(), idsKey, fieldOf("id")).Val()
	digest := "d" + strings.Repeat("\x00", 15)
	want := digest + "0000000000000001" + "0000000000003" + strings.Repeat("-", 45) + digest + "0000000000000002" + "0000000000003"
	if len(record) < 13 || record[13:] != want {
		t.Errorf("the record is %q, want 13 digits and %q", record, want)
	}
	var until int64
	if _, err := fmt.Sscanf(record[:13], "%d", &until); err != nil || time.Until(time.UnixMilli(until)).Round(time.Hour) != 24*time.Hour {
		t.Errorf("the ID is known until %s, %v", time.UnixMilli(until), err)
	}
}

// The packet of a Save arrives after its ID has expired. The record is then as before.
func TestTurnIDs_O_veryLateCopy(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	first := s.exchange("id", 1)
	for range 2 {
		if v, err := s.append(first); err != nil || v.Outcome != driver.Done {
			t.Fatal(v, err)
		}
		if n, at := s.places("id"); n != 1 || !slices.Equal(at, []string{"1-3000000"}) {
			t.Errorf("%d are stored under the ID, at %s", n, at)
		}
		must(t, s.client.HDel(t.Context(), idsKey, fieldOf("id")).Err())
	}
	v, err := s.append(s.exchange("later", 1))
	must(t, err)
	if v, err = s.append(first); err != nil || v.Outcome != driver.Done { // its own entry stands there
		t.Error(v, err)
	}
	must(t, s.client.HDel(t.Context(), idsKey, fieldOf("id")).Err())
	must(t, s.client.XDel(t.Context(), logKey, "1-3000000").Err())
	if v, err = s.append(first); err != nil || v.Outcome != driver.Stale {
		t.Error(v, err)
	}
	if n, at := s.places("id"); n != 0 || len(at) > 0 {
		t.Errorf("%d are stored under the ID of a refused Save, at %s", n, at)
	}
}

// A record of another program is not overwritten, and decides nothing.
func TestTurnIDs_O_foreignRecord_refused(t *testing.T) {
	t.Parallel()
	s := newRig(t, redis.Options{}, nil, nil)
	ids, ctx := strings.TrimSuffix(s.log(), "log")+"ids", lockedmemory.WithTurnID(t.Context(), "id")
	sound := fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
	for _, record := range []string{
		"", "x", "1", sound + ":" + strings.Repeat("0", 32), sound + strings.Repeat("0", 44), strings.Repeat("x", 13),
		" " + sound[1:] + strings.Repeat("0", 45), sound[:12], strings.Repeat("x", 13) + strings.Repeat("0", 45),
	} {
		must(t, s.client.HSet(ctx, ids, fieldOf("id"), record).Err())
		for name, call := range map[string]func(context.Context) error{
			"Save": func(ctx context.Context) error { return s.memory.Save(ctx, "q", "a") },
			"Load": func(ctx context.Context) error { return s.memory.Turn(ctx, s.opens) },
			"Save in turn": func(ctx context.Context) error {
				return s.memory.Turn(ctx, func(ctx context.Context) error { return s.memory.Save(ctx, "q", "a") })
			},
		} {
			if err := call(ctx); !errors.Is(err, distlock.ErrRefused) || !strings.Contains(err.Error(), `ends in "ids"`) {
				t.Errorf("%s with the record %q: %v", name, record, err)
			}
		}
		if kept := s.client.HGet(ctx, ids, fieldOf("id")).Val(); kept != record {
			t.Errorf("the record %q is now %q", record, kept)
		}
	}
	if n := s.client.XLen(ctx, s.log()).Val(); n > 0 {
		t.Errorf("there are %d entries", n)
	}
}

// An expired ID is not known, even while other IDs keep its record.
func TestTurnIDs_expiredRecord_isNotKnown(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	_, err := s.append(s.exchange("id", 1))
	must(t, err)
	past := fmt.Sprintf("%013d", time.Now().Add(-time.Millisecond).UnixMilli())
	record := s.client.HGet(t.Context(), idsKey, fieldOf("id")).Val()
	must(t, s.client.HSet(t.Context(), idsKey, fieldOf("id"), past+record[13:]).Err())
	if n, at := s.places("id"); n != 0 || len(at) > 0 {
		t.Errorf("%d are stored under the ID, at %s", n, at)
	}
	if v, err := s.append(s.exchange("id", 1)); err != nil || v.Outcome != driver.Done {
		t.Error(v, err)
	}
	if n, at := s.places("id"); n != 1 || !slices.Equal(at, []string{"2-3000000"}) {
		t.Errorf("%d are stored under the ID, at %s", n, at)
	}
}

// Replaced content is at sub-places of its place. The record does not change.
func TestTurnIDs_replacedContent_isFound(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	_, err := s.append(s.exchange("id", 1))
	must(t, err)
	must(t, s.client.XDel(t.Context(), logKey, "1-3000000").Err())
	for n, id := range []string{"id", "other", "", "id"} {
		fields := []string{"op", strings.Repeat("0", 32), "m", "new"}
		if id != "" {
			fields = append(fields, "id", id, "no", "1")
		}
		must(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: logKey, ID: fmt.Sprintf("1-%d", 3_000_001+n), Values: fields}).Err())
	}
	must(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: logKey, ID: "1-4000000", // a next exchange
		Values: []string{"op", strings.Repeat("0", 32), "m", "next", "id", "id", "no", "1"}}).Err())
	if n, at := s.places("id"); n != 1 || !slices.Equal(at, []string{"1-3000001", "1-3000004"}) {
		t.Errorf("%d are stored under the ID, at %s", n, at)
	}
}

// The first Save of a lease moves the mark, also with a turn ID.
func TestTurnIDs_S2_firstSave_movesMark(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	for range 2 {
		a := s.exchange("id", int(s.fence)+1)
		_, err := s.append(a)
		must(t, err)
		if mark, want := s.client.Get(t.Context(), "session:{s}:mark").Val(), fmt.Sprintf("%d-0:l:::0", a.Fence); mark != want {
			t.Errorf("the mark is %q, want %q", mark, want)
		}
	}
}

// A Save inside a turn prolongs the life of its session, also with a turn ID. If Redis refuses that, the
// exchange is stored, and the outcome is unknown to the caller.
func TestTurnIDs_C_inTurn_prolongsLife(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	s := newRig(t, redis.Options{Addr: server.Addr()}, nil, &sessionstore.Retention{IdleTTL: time.Hour})
	must(t, s.memory.Turn(lockedmemory.WithTurnID(t.Context(), "id"), func(ctx context.Context) error {
		must(t, s.memory.Save(ctx, "q", "a"))
		must(t, s.client.PExpire(ctx, s.log(), time.Minute).Err())
		must(t, s.memory.Save(ctx, "q2", "a2"))
		if life := s.client.PTTL(ctx, s.log()).Val(); life < 59*time.Minute {
			t.Errorf("the session lives for %s", life)
		}
		if _, err := server.Do("ACL", "SETUSER", "default", "-pexpire"); err != nil {
			t.Fatal(err)
		}
		if err := s.memory.Save(ctx, "q3", "a3"); !errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("Save: %v", err)
		}
		return nil
	}))
	if got := s.history(t); len(got) != 6 {
		t.Errorf("the history is %q", got)
	}
}

// A named Save inside a turn may write its ID and then lack the right to PEXPIRE. The ID is not known then.
func TestTurnIDs_O_inTurn_noLife_notKnown(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	s := newRig(t, redis.Options{Addr: server.Addr()}, nil, nil)
	must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, s.memory.Save(ctx, "q", "a"))
		named := lockedmemory.WithTurnID(ctx, "id")
		if _, err := server.Do("ACL", "SETUSER", "default", "-pexpire"); err != nil {
			t.Fatal(err)
		}
		if err := s.memory.Save(named, "q2", "a2"); !errors.Is(err, distlock.ErrRefused) {
			t.Errorf("Save: %v", err)
		}
		if _, err := server.Do("ACL", "SETUSER", "default", "+pexpire"); err != nil {
			t.Fatal(err)
		}
		must(t, s.memory.Save(named, "q2", "a2"))
		return nil
	}))
	if got := s.history(t); len(got) != 4 {
		t.Errorf("the history is %q", got)
	}
}

// Saves inside a turn remove expired IDs. Data of another program stays.
func TestTurnIDs_inTurn_removesExpired(t *testing.T) {
	t.Parallel()
	s := newRig(t, redis.Options{}, nil, nil)
	ids := strings.TrimSuffix(s.log(), "log") + "ids"
	must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, s.memory.Save(ctx, "q", "a"))
		must(t, s.client.HSet(ctx, ids, "foreign", "0").Err())
		for n := range 100 {
			must(t, s.client.HSet(ctx, ids, fmt.Sprint("expired-", n), strings.Repeat("0", 13+45)).Err())
		}
		for n := range 200 {
			must(t, s.memory.Save(lockedmemory.WithTurnID(ctx, fmt.Sprint("message-", n)), "q", "a"))
		}
		return nil
	}))
	expired := 0
	for field := range s.client.HGetAll(t.Context(), ids).Val() {
		if strings.HasPrefix(field, "expired-") {
			expired++
		}
	}
	if foreign := s.client.HGet(t.Context(), ids, "foreign").Val(); expired > 25 || foreign != "0" {
		t.Errorf("%d expired IDs of 100 are left, and the data of another program is %q", expired, foreign)
	}
}

// A turn ID uses as much memory as doc.go states.
func TestTurnIDs_size(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	stored := 0
	for _, step := range []struct{ ids, most int }{{100, 90}, {500, 90}, {1000, 140}, {10_000, 140}} {
		for ; stored < step.ids; stored++ {
			_, err := s.append(s.exchange(fmt.Sprint("message-", stored), 1))
			must(t, err)
		}
		size := int(s.client.MemoryUsage(t.Context(), idsKey, 0).Val()) / step.ids
		if size > step.most {
			t.Errorf("with %d turn IDs, one has %d B, want at most %d", step.ids, size, step.most)
		}
		t.Logf("with %d turn IDs, one has %d B", step.ids, size)
	}
}
