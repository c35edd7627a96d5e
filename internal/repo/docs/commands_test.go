package docs

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// Tests below and in cmd/lockctl run these commands without a comment.
var runElsewhere = regexp.MustCompile(`^((redis-cli|lockctl) .*\n)+$`)

// Each word of a command of make or go exists. If no test of this package runs the commands of a block, a
// comment names the test that does.
func TestCommands_exist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	n := namesOf(t)
	for _, p := range allPages(t) {
		for _, c := range p.commands() {
			program := c.Words[0]
			for i, word := range c.Words[1:] {
				exists := true
				switch {
				case word == "^$":
				case c.Words[i] == "-run", c.Words[i] == "-bench": // a part of a name
					word, _, _ = strings.Cut(word, "/")
					exists = slices.ContainsFunc(slices.Collect(maps.Keys(n.words)), regexp.MustCompile(word).MatchString)
				case program == "make" && !strings.Contains(word, "="):
					exists = strings.Contains(string(makefile), "\n"+word+":")
				case program == "make", program == "go":
					exists = n.check("", word) == nil
				}
				if !exists {
					t.Errorf("%s:%d: %q: there is no %s", c.Page, c.Line, c.Words, word)
				}
			}
		}
		for _, b := range p.blocks {
			test := b.comments["run by"]
			if test != "" && !n.words[test] {
				t.Errorf("%s: there is no test %s", b, test)
			}
			if test == "" && p.forUsers() && p.name != "docs/quickstart.md" && b.lang == "bash" && !runElsewhere.MatchString(b.text) {
				t.Errorf("%s: no comment says which test runs the commands", b)
			}
		}
	}
}

// Redis takes each command that no other test runs, with a session that has no data, and the settings.
func TestCommands_redisTakesThem(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	for _, c := range Commands(t, "redis-cli") {
		args := slices.DeleteFunc(slices.Clone(c.Words[1:]), func(word string) bool { return word == "--scan" })
		if c.runBy != "" || strings.HasPrefix(args[0], "-") {
			continue
		}
		if _, err := server.Do(args...); err != nil && !strings.Contains(err.Error(), "no such key") {
			t.Errorf("%s:%d: %q: %v", c.Page, c.Line, c.Words, err)
		}
	}
	for setting := range strings.Lines(Place{"docs/operations/deploy.md", "## Settings of Redis"}.Blocks(t, "text")[0]) {
		if _, err := server.Do(append([]string{"CONFIG", "SET"}, strings.Fields(setting)...)...); err != nil {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

// PostgreSQL takes the grants and the queries.
func TestCommands_postgresTakesThem(t *testing.T) {
	t.Parallel()
	db := servers.SharedPostgres(t).NewDatabase(t)
	pool, err := pgxpool.New(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pglock.Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	if err := pgstore.Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks(Pages(t), "sql") {
		// The role of the page exists in the transaction alone.
		if _, err := db.Do("BEGIN; CREATE ROLE agent; " + b.text + "; ROLLBACK"); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
}

// The command prints the lock_key of log lines.
func TestRunbook_hashIsTheLockKeyOfLogs(t *testing.T) {
	t.Parallel()
	printed := shell(t, strings.Replace(FirstLook.Blocks(t, "bash")[1], "KEY", "tenant-7:session-4711", 1))
	if want := distlock.KeyHashed.Show("tenant-7:session-4711"); strings.TrimSpace(printed) != want {
		t.Errorf("it printed %q, the log has %q", printed, want)
	}
}

// The commands save the data of a replica, start a server as a replica, and name the master.
func TestRunbook_sentinelFailover(t *testing.T) {
	t.Parallel()
	s := servers.StartTopology(t, "sentinel")
	master := s.Master("")
	s.AwaitReplicas(master)
	replica, file := s.Replicas(master)[0], filepath.Join(t.TempDir(), "dump.rdb")
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	at := func(server *servers.Redis) string { return strings.Replace("-h "+server.Addr(), ":", " -p ", 1) }
	here := strings.NewReplacer("-h REPLICA", at(replica), "FILE", file, "10.0.0.2 6379", host+" "+port,
		"-h SENTINEL -p 26379", at(s.Sentinels()[0]), "mymaster", s.MasterName(), "-h MASTER", at(master))
	steps := Place{FirstLook.Page, "## After a failover"}.Blocks(t, "bash")

	shell(t, here.Replace(steps[0]))
	if saved, err := os.ReadFile(file); !strings.HasPrefix(string(saved), "REDIS") {
		t.Errorf("the file is %q, %v", saved, err)
	}
	// The configuration file of the test stands in for that of the page.
	replica.RestartWith(shellWords(here.Replace(steps[1]))[0][2:]...)
	s.AwaitReplicas(master)
	if printed, want := shell(t, here.Replace(steps[2])), host+"\n"+port+"\nmaster\n"; !strings.HasPrefix(printed, want) {
		t.Errorf("the Sentinel and the master say %q, want %q", printed, want)
	}
}

// shell runs commands, and returns what they print.
func shell(t *testing.T, commands string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}
