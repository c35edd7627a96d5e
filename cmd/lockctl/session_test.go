package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// chat is a session of an application.
type chat struct {
	*lockedmemory.LockedMemory[[]byte, []byte]
}

func newChat(t *testing.T, url, session string) chat {
	t.Helper()
	store, _, _ := lockurl.Split(url)
	s, err := (&tool{url: url, store: store}).openStore()
	must(t, err)
	t.Cleanup(s.close)
	key := lockedmemory.FixedKey(session)
	inner, err := sessionstore.New(s.Driver, key, raw{}, nil)
	must(t, err)
	locker, err := lockurl.Open(t.Context(), url, &distlock.Options{TTL: 3 * time.Second, Wait: time.Minute})
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	memory, err := lockedmemory.New(inner, locker, key, nil)
	must(t, err)
	return chat{memory}
}

func (c chat) save(t *testing.T, id, question, answer string) {
	t.Helper()
	err := error(nil)
	if id != "" {
		err = c.SaveOnce(t.Context(), id, []byte(question), []byte(answer))
	} else {
		err = c.Save(t.Context(), []byte(question), []byte(answer))
	}
	if err != nil {
		t.Error(err)
	}
}

// places hides the tokens in places.
func (r result) places(t *testing.T, code int, want string) {
	t.Helper()
	r.out = placeTokens.ReplaceAllString(r.out, "TOKEN")
	r.prints(t, code, want)
}

func TestSession_listShowVerifyDelete(t *testing.T) {
	onBackends(t, func(t *testing.T, url string) {
		lockctl(t, "session", "list", "--url", url).prints(t, 0, `No session in the namespace "session" has an exchange.`)
		lockctl(t, "session", "list", "--url", inNamespace(url, "chat")).prints(t, 0, `No session in the namespace "chat:session" has an exchange.`)
		lockctl(t, "session", "show", "chat-1", "--url", url).is(t, exitFinding, "the session has no exchange")
		one, other := newChat(t, url, "chat-1"), newChat(t, url, "chat-0")
		one.save(t, "order-1", "What is a lease?", "A lock that ends.")
		one.save(t, "", "And a\ntoken?", "A number that rises.")
		other.save(t, "", "Hello", "Hello")
		lockctl(t, "session", "list", "--url", url).prints(t, 0, "SESSION\nchat-0\nchat-1")
		lockctl(t, "session", "list", "--store", url).prints(t, 0, "SESSION\nchat-0\nchat-1")
		lockctl(t, "session", "list", "-o", "json", "--url", url, "--limit", "1").
			is(t, 0, `"more": true`, `"chat-0"`, "raise --limit")
		lockctl(t, "session", "show", "chat-1", "--url", url).places(t, 0, `
PLACE  GRANTED  ID  MESSAGES  BYTES
TOKEN-1000000  CLOCK  order-1  2  33
TOKEN-1000000  CLOCK  -  2  32`)
		lockctl(t, "session", "show", "chat-1", "--text", "--url", url).is(t, 0, "\n  What is a lease?\n  A lock that ends.\n",
			`And a\ntoken?`)
		lockctl(t, "session", "show", "chat-1", "-o", "json", "--limit", "1", "--url", url).places(t, 0, `{
  "exchanges": [
    {
      "place": "TOKEN-1000000",
      "token": TOKEN,
      "granted": "CLOCK",
      "id": "",
      "messages": 2,
      "bytes": 32
    }
  ],
  "session": "chat-1"
}`)
		lockctl(t, "session", "verify", "chat-1", "--url", url).
			prints(t, 0, "exchanges 2\ntokens    2\nIDs       1\nbytes     65\nNo problem was found.")
		lockctl(t, "session", "verify", "chat-1", "--store", url, "--limit", "1", "-o", "json").
			is(t, 0, `"exchanges": 1`, `"more": true`, `"problems": []`)
		lockctl(t, "session", "verify", "chat-1", "--store", url, "--limit", strconv.Itoa(math.MaxInt)).is(t, 0, "exchanges 2")
		places := placeTokens.FindAllString(lockctl(t, "session", "show", "chat-1", "--url", url).out, 1)
		lockctl(t, "session", "fork", "chat-1", "chat-2", "--up-to", places[0]+"-1000000", "--url", url).is(t, 0, "Copied.")
		lockctl(t, "session", "show", "chat-2", "--text", "--url", url).is(t, 0, places[0], "What is a lease?")
		lockctl(t, "session", "fork", "chat-1", "chat-2", "--url", url).is(t, exitFinding, "session not empty")
		lockctl(t, "session", "fork", "chat-1", "chat-3", "--up-to", "first", "--url", url).is(t, exitUsage, "must be a place")
		lockctlWith(t.Context(), strings.NewReader("yes\n"), "session", "delete", "chat-2", "--url", url).is(t, 0, "Deleted.")
		lockctlWith(t.Context(), strings.NewReader("no\n"), "session", "delete", "chat-l", "--url", url).
			is(t, exitFinding, "the session has no exchange: check its name")
		lockctlWith(t.Context(), strings.NewReader("no\n"), "session", "delete", "chat-1", "--url", url).
			is(t, exitFinding, "Delete the session chat-1 for good", "nothing was changed")
		lockctl(t, "session", "show", "chat-1", "--url", url).is(t, 0)
		lockctlWith(t.Context(), strings.NewReader("yes\n"), "session", "delete", "chat-1", "--url", url).is(t, 0, "Deleted.")
		lockctl(t, "session", "show", "chat-1", "--url", url).is(t, exitFinding, "the session has no exchange")
		lockctl(t, "session", "verify", "chat-1", "--url", url).is(t, exitFinding, "the session has no exchange")
		lockctl(t, "session", "list", "--url", url).prints(t, 0, "SESSION\nchat-0")
		one.save(t, "order-1", "again", "after the delete") // its ID is forgotten
	})
}

func TestSession_textsOnlyWhenAsked(t *testing.T) {
	url := servers.SharedRedis(t).URL()
	newChat(t, url, "chat-1").save(t, "", "my secret", "another secret")
	for _, line := range []string{"session show chat-1", "session verify chat-1", "session show chat-1 -o json"} {
		if r := lockctl(t, append(strings.Fields(line), "--url", url)...).is(t, 0); strings.Contains(r.out+r.errs, "secret") {
			t.Errorf("%s printed %s%s", line, r.out, r.errs)
		}
	}
}

func TestSession_verifyFindsBrokenEntries(t *testing.T) {
	database := servers.SharedRedis(t)
	newChat(t, database.URL(), "chat-1").save(t, "", "question", "answer")
	client := redis.NewClient(&redis.Options{Addr: database.Addr(), DB: database.DB()})
	defer client.Close()
	must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: "session:{chat-1}:log", Values: []string{"odd", "entry"}, ID: "1999999999999999-1000000"}).Err())
	lockctl(t, "session", "verify", "chat-1", "--url", database.URL()).is(t, exitFinding, "cannot be read", "ahead of this machine's clock",
		"Problems: 2")
	lockctl(t, "session", "show", "chat-1", "--url", database.URL()).is(t, 0, "1999999999999999-1000000", "\n  broken: ")
}

// A holder under a lower token than the session has seen is one of a service that lost its data.
func TestSession_verifyComparesTheLock(t *testing.T) {
	url := servers.SharedRedis(t).URL()
	early := acquire(t, open(t, url), "chat-1", "host-1:10")
	elsewhere := url + "?namespace=elsewhere"
	verify := func(code int, text string) {
		t.Helper()
		lockctl(t, "session", "verify", "chat-1", "--url", url).is(t, code, text)
	}
	if early.reply.FenceEnd > time.Now().UnixMicro() {
		time.Sleep(time.Until(time.UnixMicro(early.reply.FenceEnd)))
	}
	newChat(t, elsewhere, "chat-1").save(t, "", "question", "answer")
	verify(exitFinding, "the lock is held under the lower token "+token(early))
	must(t, second(early.driver.Release(t.Context(), lockdriver.ReleaseRequest{Name: early.req.Name, Owner: early.req.Owner})))
	verify(0, "No problem was found.")
}

func TestVerify_findsEachProblem(t *testing.T) {
	now := time.Now()
	at := func(token, n int64) lockedmemory.Place { return lockedmemory.Place{Fence: token, N: n} }
	message := [][]byte{[]byte("m")}
	for name, c := range map[string]struct {
		entries []storedriver.Entry
		want    string
	}{
		"order":   {[]storedriver.Entry{{Place: at(2, 1), Messages: message}, {Place: at(1, 1), Messages: message}}, "the place is not above the one before, 2-1000000"},
		"same":    {[]storedriver.Entry{{Place: at(2, 1), Messages: message}, {Place: at(2, 1), Messages: message}}, "the place is not above"},
		"clock":   {[]storedriver.Entry{{Place: at(now.Add(25*time.Hour).UnixMicro(), 1), Messages: message}}, "ahead of this machine's clock"},
		"broken":  {[]storedriver.Entry{{Place: at(1, 1), Err: fmt.Errorf("odd")}}, "cannot be read: odd"},
		"empty":   {[]storedriver.Entry{{Place: at(1, 1)}}, "has no message"},
		"doubled": {[]storedriver.Entry{{Place: at(1, 1), Messages: message, ID: "a"}, {Place: at(2, 1), Messages: message, ID: "a"}}, "an exchange before it has its ID"},
		"none":    {[]storedriver.Entry{{Place: at(1, 1), Messages: message, ID: "a"}, {Place: at(1, 2), Messages: message, ID: "b"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := &verdict{known: map[string]bool{}}
			for _, e := range c.entries {
				v.check(e, now)
			}
			if got := fmt.Sprint(v.Problems); !strings.Contains(got, c.want) || (c.want == "") != (len(v.Problems) == 0) {
				t.Errorf("the problems are %s, want %q", got, c.want)
			}
		})
	}
}

func TestSession_deleteWaitsForTheTurn(t *testing.T) {
	url := servers.SharedRedis(t).URL()
	c := newChat(t, url, "chat-1")
	deleted := make(chan result, 1)
	err := c.Turn(t.Context(), func(ctx context.Context) error {
		if err := c.Save(ctx, []byte("question"), []byte("answer")); err != nil {
			return err
		}
		go func() {
			deleted <- lockctlWith(context.WithoutCancel(ctx), strings.NewReader(""), "session", "delete", "chat-1", "--yes", "--url", url)
		}()
		servers.Await(t, 30*time.Second, "the delete", func() bool {
			return strings.Contains(lockctl(t, "show", "chat-1", "--url", url).out, "waiters   1")
		})
		return c.Save(ctx, []byte("second question"), []byte("answer"))
	})
	must(t, err)
	(<-deleted).is(t, 0, "Deleted.")
	lockctl(t, "session", "show", "chat-1", "--url", url).is(t, exitFinding)
}
