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

// ids is the session of a rig. Its driver writes exchanges with IDs under rising tokens, from 1 on.
type ids struct {
	*testing.T
	*rig
	storedriver.Driver
	access storedriver.Access
	fence  *int64
}

func newIDs(t *testing.T) *ids {
	s := &ids{T: t, rig: newRig(t), fence: new(int64)}
	// A session with a mark admits small tokens.
	must(t, s.client.Set(t.Context(), s.mark(), "1:0-0:e:::0:", 0).Err())
	return s.remembering(0)
}

// remembering is the same session, with a driver that remembers IDs for a time.
func (s *ids) remembering(d time.Duration) *ids {
	other := *s
	other.Driver, other.access = driverOf(s.T, s.client, storedriver.Retention{RememberIDs: d})
	other.access.Session = s.key
	return &other
}

// save stores an exchange under an ID and a token.
func (s *ids) save(id string, fence int64, want storedriver.Outcome) {
	s.Helper()
	*s.fence++
	a := s.access
	a.Fence = fence
	v, err := s.Append(s.Context(), storedriver.Append{
		Write:   storedriver.Write{Access: a, N: 3, Op: fmt.Sprintf("%032x", *s.fence)},
		Content: storedriver.Content{Messages: [][]byte{{'m'}}, ID: id, Digest: [16]byte{'d'}},
	})
	if err != nil || v.Outcome != want {
		s.Fatalf("%s under %d: %+v, %v; want %d", id, fence, v, err, want)
	}
}

func (s *ids) saves(id string) {
	s.Helper()
	s.save(id, *s.fence+1, storedriver.Done)
}

// isAt checks the place of an ID. Empty: the ID is not known.
func (s *ids) isAt(id, place string) {
	s.Helper()
	page, err := s.Read(s.Context(), storedriver.Read{Access: storedriver.Access{Session: s.key}, ID: id, Limit: 1})
	must(s.T, err)
	at := ""
	for _, e := range page.Entries {
		at += e.Place.String()
	}
	if at != place || page.Known != (place != "") {
		s.Errorf("%s is at %q, known: %t; want %q", id, at, page.Known, place)
	}
}

func (s *ids) record(id string) string { return s.client.HGet(s.Context(), s.ids(), fieldOf(id)).Val() }

func fieldOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return string(sum[:16])
}

func TestIDs_storedForm(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	s.saves("id")
	record, want := s.record("id"), "d"+strings.Repeat("\x00", 15)+"0000000000000001"+"0000000000003"
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
	s := newRig(t)
	ids, ctx := s.ids(), t.Context()
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

// Replaced content is at sub-places of its place. The record does not change.
func TestIDs_replacedContent_isFound(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	s.saves("id")
	must(t, s.client.XDel(t.Context(), s.log(), "1-3000000").Err())
	for _, e := range [][2]string{{"1-3000001", ""}, {"1-3000002", "other"}, {"1-3000003", "id"}, {"1-4000000", "id"}} {
		fields := []string{"op", strings.Repeat("0", 32), "m", "new"}
		if e[1] != "" {
			fields = append(fields, "id", e[1])
		}
		must(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.log(), ID: e[0], Values: fields}).Err())
	}
	s.isAt("id", "1-3000003") // that at 1-4000000 is of a next exchange
}

// A session has one key of IDs. The key lives as long as its last ID. A SaveOnce removes
// expired IDs.
func TestIDs_areInOneKey(t *testing.T) {
	t.Parallel()
	s := newIDs(t)
	long, short := s.remembering(time.Hour), s.remembering(time.Second)
	many := func(by *ids, times int) {
		for range times {
			by.saves(fmt.Sprint(*s.fence))
		}
	}
	many(long, 1)
	many(short, 40)
	if life := s.client.PTTL(t.Context(), s.ids()).Val(); life < time.Hour/2 {
		t.Errorf("a shorter RememberIDs has cut the life of the IDs to %s", life)
	}
	time.Sleep(time.Second + 10*time.Millisecond) // the 40 expire
	long.save("stale", 1, storedriver.Stale)
	long.saves("stale") // the ID of a refused Save is not known
	many(long, 98)
	if known := s.client.HLen(t.Context(), s.ids()).Val(); known < 100 || known > 110 {
		t.Errorf("%d turn IDs, want 100 and few of the 40 expired ones", known)
	}
	if keys := s.client.Keys(t.Context(), "session:{"+s.key+"}:*").Val(); len(keys) != 3 { // with log and mark
		t.Errorf("the keys are %q", keys)
	}
}

// A Save inside a turn prolongs the life of its session, also with an ID. If Redis refuses that, the
// exchange is stored, and the outcome is unknown to the caller.
func TestIDs_C_inTurn_prolongsLife(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := newRig(t, server, &sessionstore.Retention{IdleTTL: time.Hour})
	s.turn(t, func(ctx context.Context) {
		must(t, s.memory.SaveOnce(ctx, "1", "q", "a"))
		must(t, s.client.PExpire(ctx, s.log(), time.Minute).Err())
		must(t, s.memory.SaveOnce(ctx, "2", "q2", "a2"))
		if life := s.client.PTTL(ctx, s.log()).Val(); life < 59*time.Minute {
			t.Errorf("the session lives for %s", life)
		}
		do(t, server, "ACL", "SETUSER", "default", "-pexpire")
		if err := s.memory.SaveOnce(ctx, "3", "q3", "a3"); !errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("Save: %v", err)
		}
	})
	if got := s.history(t); len(got) != 6 {
		t.Errorf("the history is %q", got)
	}
}

// A SaveOnce inside a turn may write its ID and then lack the right to PEXPIRE. The ID is not known then.
func TestIDs_O_inTurn_noLife_notKnown(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := newRig(t, server)
	s.turn(t, func(ctx context.Context) {
		must(t, s.memory.Save(ctx, "q", "a"))
		do(t, server, "ACL", "SETUSER", "default", "-pexpire")
		if err := s.memory.SaveOnce(ctx, "id", "q2", "a2"); !errors.Is(err, distlock.ErrRefused) {
			t.Errorf("Save: %v", err)
		}
		do(t, server, "ACL", "SETUSER", "default", "+pexpire")
		must(t, s.memory.SaveOnce(ctx, "id", "q2", "a2"))
	})
	if got := s.history(t); len(got) != 4 {
		t.Errorf("the history is %q", got)
	}
}

// Saves inside a turn remove expired IDs. Data of another program stays.
func TestIDs_inTurn_removesExpired(t *testing.T) {
	t.Parallel()
	s := newRig(t)
	ids := s.ids()
	s.turn(t, func(ctx context.Context) {
		must(t, s.memory.Save(ctx, "q", "a"))
		must(t, s.client.HSet(ctx, ids, "foreign", "0").Err())
		for n := range 100 {
			must(t, s.client.HSet(ctx, ids, fmt.Sprint("expired-", n), "1"+strings.Repeat("0", 58)).Err())
		}
		for n := range 200 {
			must(t, s.memory.SaveOnce(ctx, fmt.Sprint("message-", n), "q", "a"))
		}
	})
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
	for n, most := range map[int]int64{100: 90, 500: 90, 1000: 140} {
		must(t, s.client.Del(t.Context(), s.ids(), s.log()).Err())
		for id := range n {
			s.saves(fmt.Sprint("message-", n, "-", id))
		}
		if size := s.client.MemoryUsage(t.Context(), s.ids(), 0).Val() / int64(n); size > most {
			t.Errorf("with %d IDs, one has %d B, want at most %d", n, size, most)
		}
	}
}
