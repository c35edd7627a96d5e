package docs

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/testservers"
)

// Each program for a quorum prints the same with three nodes and with two. The nodes start with the
// arguments of the page, on free ports.
func TestRedlock3_programPrintsItsOutput(t *testing.T) {
	t.Parallel()
	for _, p := range Pages(t) {
		for _, program := range p.Programs() {
			if kind, _ := serverOf(program); kind != "quorum" {
				continue
			}
			const ttl = "5 * time.Second"
			if !strings.Contains(program.Source, "TTL: "+ttl) {
				t.Fatal("the program has another TTL than " + ttl)
			}
			q := testservers.StartQuorum(t, 3, serverArgs(t, p)...)
			nodes, source := q.Nodes(), program.Source
			for i, node := range nodes {
				source = strings.ReplaceAll(source, "localhost:700"+strconv.Itoa(i+1), node.Addr())
			}
			binary := build(t, source)
			awaitAge(t, q, 7)
			if got := Run(t, binary); got != program.Output {
				t.Errorf("it printed %q, the page says %q", got, program.Output)
			}
			nodes[0].Kill() // from now on go-redis logs
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if got, err := exec.CommandContext(ctx, binary).Output(); err != nil || string(got) != program.Output {
				t.Errorf("with a dead node it printed %q, the page says %q; %v", got, program.Output, err)
			}
		}
	}
}

// awaitAge waits until all nodes are up for some seconds.
func awaitAge(t *testing.T, q *testservers.Quorum, seconds int) {
	t.Helper()
	testservers.Await(t, 20*time.Second, "the nodes are old enough", func() bool {
		return !slices.ContainsFunc(q.Nodes(), func(node *testservers.Redis) bool {
			up, err := strconv.Atoi(node.Info("uptime_in_seconds"))
			return err != nil || up < seconds
		})
	})
}

// The texts of the table of errors are those of the library.
func TestRedlock3_errorTexts(t *testing.T) {
	t.Parallel()
	q := testservers.StartQuorum(t, 3)
	nodes, addrs := q.Nodes(), q.Addrs()
	young := tryAcquireError(t, open(t, q.URL(), nil))
	port := addrs[1][strings.LastIndexByte(addrs[1], ':'):]
	twice := tryAcquireError(t, open(t, "redlock+redis://localhost"+port+","+addrs[0]+","+addrs[1], nil))
	const off = "?restart_delay=-1s"
	for _, node := range nodes[:2] {
		if _, err := node.Do("SET", "distlock:{session}:lock", "theirs"); err != nil {
			t.Fatal(err)
		}
	}
	foreign := tryAcquireError(t, open(t, q.URL()+off, nil))
	for _, node := range nodes[:2] {
		node.Kill()
	}
	down := tryAcquireError(t, open(t, q.URL()+off, nil))
	_, few := lockurl.Open(t.Context(), "redlock+redis://a,b", nil)
	_, even := lockurl.Open(t.Context(), "redlock+redis://a,b,c,d", nil)
	_, long := open(t, q.URL()+"?restart_delay=30s", nil).TryAcquire(t.Context(), "session", distlock.WithTTL(time.Minute))
	rows := QuorumErrors.Table(t)
	for _, c := range []struct {
		text string
		err  error
		kind error
	}{
		{"2 of 3 nodes have to agree", down, distlock.ErrUnavailable},
		{"its server is up for less than", young, distlock.ErrUnavailable},
		{"is longer than the restart delay", long, distlock.ErrRefused},
		{"are one server", twice, distlock.ErrUnavailable},
		{"redlock needs 3 nodes or more", few, distlock.ErrInvalidOption},
		{"use an odd number of nodes", even, distlock.ErrInvalidOption},
		{"holds data of another program", foreign, distlock.ErrRefused},
	} {
		inPage := slices.ContainsFunc(rows, func(row []string) bool { return strings.Contains(row[0], c.text) })
		if !errors.Is(c.err, c.kind) || !strings.Contains(c.err.Error(), c.text) || !inPage {
			t.Errorf("%s: the error is %v; in the page: %t", c.text, c.err, inPage)
		}
	}
	if len(rows) != 7 {
		t.Errorf("the page has %d texts, and the test 7", len(rows))
	}
}

// A user with the rights of the page can lock, wait and be notified. Redis refuses nothing.
func TestRedlock3_rightsSuffice(t *testing.T) {
	t.Parallel()
	q := testservers.StartQuorum(t, 3)
	acl := command(t, QuorumRights)
	var hosts []string
	for _, node := range q.Nodes() {
		if _, err := node.Do(acl...); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, "agent:password@"+node.Addr())
	}
	url := "redlock+redis://" + strings.Join(hosts, ",") + "?restart_delay=5s&ttl=5s"
	holder, waiter := open(t, url, nil), open(t, url, nil)
	awaitAge(t, q, 7)
	lease := acquire(t, holder)
	waited := make(chan error)
	go func() { waited <- waiter.Do(t.Context(), "session", func(context.Context) error { return nil }) }()
	if err := lease.Extend(t.Context(), 5*time.Second); err != nil {
		t.Error(err)
	}
	testservers.Await(t, 20*time.Second, "the waiter listens on each node", func() bool {
		return !slices.ContainsFunc(q.Nodes(), func(node *testservers.Redis) bool {
			channels, err := node.Do("PUBSUB", "CHANNELS", "distlock:free:*")
			return err != nil || channels == ""
		})
	})
	if err := errors.Join(lease.Release(t.Context()), <-waited); err != nil {
		t.Error(err)
	}
	for _, node := range q.Nodes() {
		if refused := testservers.RefusedToUsers(t, node); refused != "" {
			t.Errorf("a node has refused %s", refused)
		}
	}
}
