package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/integrity"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// A store whose order is a counter of each process misorders a session also if every Save has the session's lock: the Redis message
// store of Beluga AI v2.13.2 is such a store. The lock can say who is next; where a message stands is for the store.
func TestPerProcessOrder_misordersUnderAPerfectLock(t *testing.T) {
	server := testservers.StartRedis(t)
	for _, test := range []struct {
		name, want string
		wrong      bool
		store      func(redis.UniversalClient) (memory, error)
	}{
		{
			"counted", "A-q0 B-q0 A-a0 B-a0 A-q1 B-q1 A-a1 B-a1 A-q2 B-q2 A-a2 B-a2", true,
			func(client redis.UniversalClient) (memory, error) { return newCounted(client), nil },
		},
		{
			"redisstore", "A-q0 A-a0 A-q1 A-a1 A-q2 A-a2 B-q0 B-a0 B-q1 B-a1 B-q2 B-a2", false,
			func(client redis.UniversalClient) (memory, error) {
				return redisstore.New(client, sessionOf, codec{}, nil)
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := withSession(t.Context(), test.name)
			var last memory
			var attempts []integrity.Attempt
			for _, name := range []string{"A", "B"} { // one after the other
				client := redis.NewClient(&redis.Options{Addr: server.Addr()})
				defer client.Close()
				l, err := redislock.New(client, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close(context.Background())
				store, err := test.store(client)
				if err != nil {
					t.Fatal(err)
				}
				var i instance
				if err := i.use(l, store, true); err != nil {
					t.Fatal(err)
				}
				for n := range 3 {
					question := message{Turn: len(attempts), Role: integrity.Question, Write: fmt.Sprint(name, "-q", n)}
					answer := message{Turn: len(attempts), Role: integrity.Answer, Write: fmt.Sprint(name, "-a", n), Seen: 2 * len(attempts)}
					if err := i.memory.Save(ctx, question, answer); err != nil {
						t.Fatal(err)
					}
					at := int64(len(attempts) + 1)
					attempts = append(attempts, integrity.Attempt{Turn: question.Turn, Writer: ledger, Acknowledged: true, Begun: 2 * at, Ended: 2*at + 1})
				}
				last = store
			}
			stored, err := last.Load(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			var stands []string
			var messages []integrity.Message
			for _, m := range stored {
				stands = append(stands, m.Write)
				messages = append(messages, integrity.Message{Turn: m.Turn, Role: m.Role, Writer: ledger, Seen: m.Seen})
			}
			if got := strings.Join(stands, " "); got != test.want {
				t.Errorf("it stands there as %s, want %s", got, test.want)
			}
			report := integrity.Judge(messages, attempts)
			if wrong := len(report.Turns(integrity.Torn, integrity.OutOfOrder)) > 0; wrong != test.wrong {
				t.Errorf("judged:\n%s", report)
			}
		})
	}
}
