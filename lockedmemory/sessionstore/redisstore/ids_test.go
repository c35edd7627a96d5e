package redisstore_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// ids is a session whose driver writes under rising tokens.
type ids struct {
	*testing.T
	client *redis.Client
	writer func(session string, fence int64) (storedriver.Driver, storedriver.Access)
	fence  int64
}

func newIDs(t *testing.T) *ids {
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	markKnown(t, client)
	return &ids{T: t, client: client, writer: driverOf(t, client, storedriver.Retention{})}
}

const idsKey, logKey = "session:{s}:ids", "session:{s}:log"

// exchange is the next one that a new lease stores under an ID.
func (s *ids) exchange(id string) storedriver.Append {
	s.fence++
	_, access := s.writer("s", s.fence)
	return storedriver.Append{
		Write:   storedriver.Write{Access: access, N: 3, Op: fmt.Sprintf("%032x", s.fence)},
		Content: storedriver.Content{Messages: [][]byte{{'m'}}, ID: id, Digest: [16]byte{'d'}},
	}
}

func (s *ids) append(a storedriver.Append) (storedriver.Verdict, error) {
	d, _ := s.writer("s", 1)
	return d.Append(s.Context(), a)
}

// place returns the place of the exchange of an ID, or "gone".
func (s *ids) place(id string) (at string, known bool) {
	s.Helper()
	d, _ := s.writer("s", 1)
	page, err := d.Read(s.Context(), storedriver.Read{Access: storedriver.Access{Session: "s"}, ID: id, Limit: 1})
	must(s.T, err)
	for _, e := range page.Entries {
		at += e.Place.String()
	}
	return at, page.Known
}

// isAt checks the place of an ID. Empty: the ID is not known.
func (s *ids) isAt(id, place string) {
	s.Helper()
	if at, known := s.place(id); at != place || known != (place != "") {
		s.Errorf("%s is at %q, known: %t; want %q", id, at, known, place)
	}
}

func fieldOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return string(sum[:16])
}

func TestIDs_storedForm(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	v, err := s.append(s.exchange("id"))
	if must(t, err); v.Outcome != storedriver.Done {
		t.Fatal(v)
	}
	record := s.client.HGet(t.Context(), idsKey, fieldOf("id")).Val()
	want := "d" + strings.Repeat("\x00", 15) + "0000000000000001" + "0000000000003"
	if len(record) != 59 || record[0] != '1' || record[14:] != want {
		t.Errorf("the record is %q, want '1', 13 digits and %q", record, want)
	}
	var until int64
	if _, err := fmt.Sscanf(record[1:14], "%d", &until); err != nil || time.Until(time.UnixMilli(until)).Round(time.Hour) != 24*time.Hour {
		t.Errorf("the ID is known until %s, %v", time.UnixMilli(until), err)
	}
}

// A record of another program, or of a later version of this library, is not overwritten, and decides nothing.
func TestIDs_O_foreignRecord_refused(t *testing.T) {
	t.Parallel()
	s := newRig(t, redis.Options{}, nil, nil)
	ids, ctx := strings.TrimSuffix(s.log(), "log")+"ids", t.Context()
	sound := "1" + fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()) + strings.Repeat("0", 45)
	for _, record := range []string{
		"", "x", "1", sound[:13], sound[:58], sound + "0", sound + sound[14:], "2" + sound[1:], " " + sound[1:],
		"1 " + sound[2:], sound[:13] + "x" + sound[14:], strings.Repeat("x", 59),
	} {
		must(t, s.client.HSet(ctx, ids, fieldOf("id"), record).Err())
		save := func(ctx context.Context) error { return s.memory.SaveOnce(ctx, "id", "q", "a") }
		for name, call := range map[string]func(context.Context) error{
			"SaveOnce":           save,
			"SaveOnce in a turn": func(ctx context.Context) error { return s.memory.Turn(ctx, save) },
			"Answered":           func(ctx context.Context) error { _, _, err := s.memory.Answered(ctx, "id"); return err },
			"Answer": func(ctx context.Context) error {
				_, err := s.memory.Answer(ctx, "id", "q", func(context.Context) ([]string, error) { return nil, errors.New("asked") })
				return err
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
func TestIDs_expiredRecord_isNotKnown(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	_, err := s.append(s.exchange("id"))
	must(t, err)
	past := fmt.Sprintf("%013d", time.Now().Add(-time.Millisecond).UnixMilli())
	record := s.client.HGet(t.Context(), idsKey, fieldOf("id")).Val()
	must(t, s.client.HSet(t.Context(), idsKey, fieldOf("id"), "1"+past+record[14:]).Err())
	s.isAt("id", "")
	if v, err := s.append(s.exchange("id")); err != nil || v.Outcome != storedriver.Done {
		t.Error(v, err)
	}
	s.isAt("id", "2-3000000")
}

// Replaced content is at sub-places of its place. The record does not change.
func TestIDs_replacedContent_isFound(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	_, err := s.append(s.exchange("id"))
	must(t, err)
	must(t, s.client.XDel(t.Context(), logKey, "1-3000000").Err())
	for n, id := range []string{"", "other", "id"} {
		fields := []string{"op", strings.Repeat("0", 32), "m", "new"}
		if id != "" {
			fields = append(fields, "id", id)
		}
		must(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: logKey, ID: fmt.Sprintf("1-%d", 3_000_001+n), Values: fields}).Err())
	}
	must(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: logKey, ID: "1-4000000", // a next exchange
		Values: []string{"op", strings.Repeat("0", 32), "m", "next", "id", "id"}}).Err())
	s.isAt("id", "1-3000003")
}

// The first Save of a lease moves the mark, also with an ID.
func TestIDs_S2_firstSave_movesMark(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	for _, id := range []string{"one", "two"} {
		a := s.exchange(id)
		_, err := s.append(a)
		must(t, err)
		if mark, want := s.client.Get(t.Context(), "session:{s}:mark").Val(), fmt.Sprintf("1:%d-0:l:::0:", a.Fence); mark != want {
			t.Errorf("the mark is %q, want %q", mark, want)
		}
	}
}

// A Save inside a turn prolongs the life of its session, also with an ID. If Redis refuses that, the
// exchange is stored, and the outcome is unknown to the caller.
func TestIDs_C_inTurn_prolongsLife(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := newRig(t, redis.Options{Addr: server.Addr()}, nil, &sessionstore.Retention{IdleTTL: time.Hour})
	must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, s.memory.SaveOnce(ctx, "1", "q", "a"))
		must(t, s.client.PExpire(ctx, s.log(), time.Minute).Err())
		must(t, s.memory.SaveOnce(ctx, "2", "q2", "a2"))
		if life := s.client.PTTL(ctx, s.log()).Val(); life < 59*time.Minute {
			t.Errorf("the session lives for %s", life)
		}
		if _, err := server.Do("ACL", "SETUSER", "default", "-pexpire"); err != nil {
			t.Fatal(err)
		}
		if err := s.memory.SaveOnce(ctx, "3", "q3", "a3"); !errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("Save: %v", err)
		}
		return nil
	}))
	if got := s.history(t); len(got) != 6 {
		t.Errorf("the history is %q", got)
	}
}

// A SaveOnce inside a turn may write its ID and then lack the right to PEXPIRE. The ID is not known then.
func TestIDs_O_inTurn_noLife_notKnown(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := newRig(t, redis.Options{Addr: server.Addr()}, nil, nil)
	must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, s.memory.Save(ctx, "q", "a"))
		if _, err := server.Do("ACL", "SETUSER", "default", "-pexpire"); err != nil {
			t.Fatal(err)
		}
		if err := s.memory.SaveOnce(ctx, "id", "q2", "a2"); !errors.Is(err, distlock.ErrRefused) {
			t.Errorf("Save: %v", err)
		}
		if _, err := server.Do("ACL", "SETUSER", "default", "+pexpire"); err != nil {
			t.Fatal(err)
		}
		must(t, s.memory.SaveOnce(ctx, "id", "q2", "a2"))
		return nil
	}))
	if got := s.history(t); len(got) != 4 {
		t.Errorf("the history is %q", got)
	}
}

// Saves inside a turn remove expired IDs. Data of another program stays.
func TestIDs_inTurn_removesExpired(t *testing.T) {
	t.Parallel()
	s := newRig(t, redis.Options{}, nil, nil)
	ids := strings.TrimSuffix(s.log(), "log") + "ids"
	must(t, s.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, s.memory.Save(ctx, "q", "a"))
		must(t, s.client.HSet(ctx, ids, "foreign", "0").Err())
		for n := range 100 {
			must(t, s.client.HSet(ctx, ids, fmt.Sprint("expired-", n), "1"+strings.Repeat("0", 58)).Err())
		}
		for n := range 200 {
			must(t, s.memory.SaveOnce(ctx, fmt.Sprint("message-", n), "q", "a"))
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

// An ID uses as much memory as doc.go states.
func TestIDs_size(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	stored := 0
	for _, step := range []struct{ ids, most int }{{100, 90}, {500, 90}, {1000, 140}, {10_000, 140}} {
		for ; stored < step.ids; stored++ {
			_, err := s.append(s.exchange(fmt.Sprint("message-", stored)))
			must(t, err)
		}
		size := int(s.client.MemoryUsage(t.Context(), idsKey, 0).Val()) / step.ids
		if size > step.most {
			t.Errorf("with %d IDs, one has %d B, want at most %d", step.ids, size, step.most)
		}
		t.Logf("with %d IDs, one has %d B", step.ids, size)
	}
}
