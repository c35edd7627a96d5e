package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/watch"
)

const childEnv = "BELUGALOCK_FAULTS_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	watch.VerifyTestMain(m)
}

// order is what a child is told when it starts.
type order struct {
	URL, Key string
	TTL      time.Duration
	Store    string // address of the store, see write
}

// serve is the child: it waits for the lock, says its token, and then does what each line of its input says, without
// looking at its lease before:
//
//	write TEXT    write under the lease's token; answers "written" or "refused"
//	cause         wait until the lease's context has ended; answers with its cause
//	release       give the lock back; answers "released", or with the error
func serve(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx := context.Background()
	l, err := lockurl.Open(ctx, o.URL, &distlock.Options{
		Namespace: namespace, TTL: o.TTL, Wait: time.Minute, Holder: "child", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	store := newStore(o.Store)
	lease, err := l.Acquire(ctx, o.Key)
	if err != nil {
		return err
	}
	fmt.Println(lease.Fence())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
		case "write":
			fmt.Println(store.write(ctx, o.Key, lease.Fence(), rest))
		case "cause":
			<-lease.Context().Done()
			fmt.Println(context.Cause(lease.Context()))
		case "release":
			if err := lease.Release(ctx); err != nil {
				fmt.Println(err)
				continue
			}
			fmt.Println("released")
		}
	}
	return nil
}

// child is another process that holds a lock, or waits for it.
type child struct {
	tb    testing.TB
	cmd   *exec.Cmd
	in    io.Writer
	out   *bufio.Scanner
	fence int64
}

// startChild returns when the child holds its lock.
func startChild(tb testing.TB, o order) *child {
	tb.Helper()
	c := startWaiter(tb, o)
	c.holds()
	return c
}

// startWaiter returns at once.
func startWaiter(tb testing.TB, o order) *child {
	tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	c := &child{tb: tb, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.kill()
		_ = c.cmd.Wait()
	})
	c.in, c.out = in, bufio.NewScanner(out)
	return c
}

// holds waits until the child has its lock.
func (c *child) holds() {
	c.tb.Helper()
	if _, err := fmt.Sscan(c.answer(), &c.fence); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *child) release() {
	c.tb.Helper()
	c.tell("release")
	if answer := c.answer(); answer != "released" {
		c.tb.Errorf("the child's release: %s", answer)
	}
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

func (c *child) signal(s syscall.Signal) {
	c.tb.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.tb.Fatal(err)
	}
}

// tell sends a line; a child that is stopped reads it when it goes on.
func (c *child) tell(line string) {
	c.tb.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		c.tb.Fatal(err)
	}
}

func (c *child) answer() string {
	c.tb.Helper()
	if !c.out.Scan() {
		c.tb.Fatalf("the child has ended: %v", c.out.Err())
	}
	return c.out.Text()
}

// store is one that compares tokens, on a server of its own: what is accepted rests on no lock.
type store struct{ client *redis.Client }

func newStore(addr string) *store {
	return &store{redis.NewClient(&redis.Options{Addr: addr})}
}

// raise shows the store a token, as a Load does, and write writes under one. A token below the highest that was shown
// is refused.
var accept = redis.NewScript(`
	if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then
		return 0
	end
	redis.call('SET', KEYS[1], ARGV[1])
	if ARGV[2] then
		redis.call('RPUSH', KEYS[2], ARGV[2])
	end
	return 1`)

func (s *store) run(ctx context.Context, key string, fence int64, args ...any) string {
	accepted, err := accept.Run(ctx, s.client, []string{"mark:" + key, "log:" + key}, append([]any{fence}, args...)...).Int()
	switch {
	case err != nil:
		return err.Error()
	case accepted == 0:
		return "refused"
	}
	return "written"
}

func (s *store) write(ctx context.Context, key string, fence int64, text string) string {
	return s.run(ctx, key, fence, text)
}

func (s *store) raise(ctx context.Context, key string, fence int64) string {
	return s.run(ctx, key, fence)
}

func (s *store) log(ctx context.Context, key string) ([]string, error) {
	log, err := s.client.LRange(ctx, "log:"+key, 0, -1).Result()
	return log, errors.Join(err)
}
