package docs

import (
	"bytes"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

// The command prints the lock_key of a Locker's log lines.
func TestRunbook_hashIsTheLockKeyOfLogs(t *testing.T) {
	t.Parallel()
	const key = "tenant-7:session-4711"
	printed := shell(t, strings.Replace(FirstLook.Blocks(t, "bash")[1], "KEY", key, 1))

	var logged bytes.Buffer
	options := &distlock.Options{TTL: distlock.MinTTL, RenewEvery: -1, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
	locker, err := memlock.New(options)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locker.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	<-lease.Context().Done() // the lease is lost, which the Locker logs
	if err := locker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := "lock_key=" + strings.TrimSpace(printed) + " "; !strings.Contains(logged.String(), text) {
		t.Errorf("the log is %q, want %q", logged.String(), text)
	}
}

// The steps save the history, bring a dead master back as a replica, and name the new master.
func TestRunbook_sentinelFailover(t *testing.T) {
	t.Parallel()
	s := testservers.StartTopology(t, "sentinel")
	client, err := redislock.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := newStored(t, client).memory.Save(t.Context(), "question", "answer"); err != nil {
		t.Fatal(err)
	}
	dead := s.Master("")
	history := historyOf(t, dead)
	s.AwaitReplicas(dead)
	steps := AfterFailover.Blocks(t, "bash")
	at := func(server *testservers.Redis) string { return strings.Replace("-h "+server.Addr(), ":", " -p ", 1) }
	const file = "dump.rdb"
	saves := func(dir string) {
		t.Helper()
		if saved := historyOf(t, testservers.StartRedis(t, "--dir", dir, "--dbfilename", file)); saved != history {
			t.Errorf("the file has the history %q, want %q", saved, history)
		}
	}

	s.Patient(time.Minute) // no failover but that of this test
	dead.Kill()
	replica := s.Replicas(dead)[0]
	testservers.Await(t, 10*time.Second, "the replica has no master", func() bool { return replica.Info("master_link_status") == "down" })
	refused, err := exec.Command("sh", "-c", strings.NewReplacer("-h REPLICA", at(replica), "FILE", "/dev/null").Replace(steps[0])).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "NOMASTERLINK") {
		t.Errorf("a replica without a master answers %s", refused)
	}
	if _, err := replica.Do("BGSAVE"); err != nil {
		t.Error(err)
	}
	testservers.Await(t, 10*time.Second, "the file of the replica", func() bool { return replica.Info("rdb_bgsave_in_progress") == "0" })
	dir, err := replica.Do("CONFIG", "GET", "dir")
	if err != nil {
		t.Fatal(err)
	}
	saves(strings.TrimPrefix(dir, "dir\n"))
	testservers.Await(t, 10*time.Second, "a Sentinel begins the failover", func() bool {
		_, err := s.Sentinels()[0].Do("SENTINEL", "FAILOVER", s.MasterName())
		return err == nil
	})
	successor := s.AwaitMaster("", dead)

	master := strings.Split(successor.Addr(), ":")
	folder := t.TempDir()
	here := strings.NewReplacer("-h REPLICA", at(successor), "FILE", filepath.Join(folder, file), "10.0.0.2 6379", strings.Join(master, " "),
		"-h SENTINEL -p 26379", at(s.Sentinels()[0]), "mymaster", s.MasterName(), "-h MASTER", at(successor))
	shell(t, here.Replace(steps[0]))
	saves(folder)

	// The configuration file of the test stands in for that of the page.
	dead.RestartWith(simpleCommands(here.Replace(steps[1]))[0][2:]...)
	if role := dead.Info("role"); role != "slave" {
		t.Errorf("the dead master comes back as a %s", role)
	}
	s.AwaitReplicas(successor)
	for _, node := range s.Nodes() {
		if kept := historyOf(t, node); kept != history {
			t.Errorf("%s has the history %q, want %q", node.Addr(), kept, history)
		}
	}

	want := strings.Join(master, "\n") + "\nmaster\n"
	if printed := shell(t, here.Replace(steps[2])); !strings.HasPrefix(printed, want) {
		t.Errorf("the Sentinel and the master say %q, want %q", printed, want)
	}
	finished := Commands(t, "redis-cli", "INFO")[0].Words
	finished[0] += " " + at(successor)
	if printed := shell(t, strings.Join(finished, " ")); strings.Count(printed, "state=online") != 2 {
		t.Errorf("the new master shows the replicas %s", printed)
	}
}

// historyOf returns the entries of the session of newStored. There is one.
func historyOf(t *testing.T, server *testservers.Redis) string {
	t.Helper()
	entries, err := server.Do("XRANGE", "session:{session}:log", "-", "+")
	if err != nil || !strings.Contains(entries, "question") {
		t.Errorf("%s has the history %q, %v", server.Addr(), entries, err)
	}
	return entries
}

// Redis takes the settings of both pages.
func TestDeploy_redisHasTheSettings(t *testing.T) {
	t.Parallel()
	for _, place := range []Place{RedisSettings, FailoverSettings} {
		args := settingsOf(t, place)
		server := testservers.StartRedis(t, args...)
		for setting := range slices.Chunk(args, 2) {
			name := strings.TrimPrefix(setting[0], "--")
			if got, err := server.Do("CONFIG", "GET", name); got != name+"\n"+setting[1] {
				t.Errorf("%s: with %q, CONFIG GET says %q, %v", place, setting, got, err)
			}
		}
	}
}

// settingsOf returns the settings of a page as arguments of redis-server.
func settingsOf(t *testing.T, place Place) (args []string) {
	t.Helper()
	for line := range strings.Lines(place.Blocks(t, "text")[0]) {
		args = append(args, strings.Fields("--"+line)...)
	}
	return args
}

// A master whose replica falls silent, as after a cut of the network, soon refuses writes.
func TestDeploy_silentReplica_masterRefusesWrites(t *testing.T) {
	t.Parallel()
	master := testservers.StartRedis(t, append(settingsOf(t, RedisSettings), "--repl-diskless-sync-delay", "0")...)
	replica := testservers.StartRedis(t, "--replicaof", strings.Replace(master.Addr(), ":", " ", 1))
	writes := func() bool {
		_, err := master.Do("SET", "key", "value")
		if err != nil && !strings.Contains(err.Error(), "NOREPLICAS") {
			t.Fatal(err)
		}
		return err == nil
	}
	testservers.Await(t, 30*time.Second, "the replica follows the master", writes)
	stop, cut := leakcheck.Stalls(), time.Now()
	replica.Pause()
	testservers.Await(t, 30*time.Second, "the master refuses writes", func() bool { return !writes() })
	if took := time.Since(cut) - stop(); took > 4*time.Second {
		t.Errorf("the master refuses writes %s after the cut, the page says at most 4 s", took)
	}
}

// go-redis logs the line of the page for a dead Redis, behind a moment and a place in its source.
func TestTroubleshooting_lineOfGoRedis(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	server.Kill()
	err := client.Ping(t.Context()).Err()
	if line := strings.TrimSpace(RedisLogLine.Blocks(t, "text")[0]); err == nil || !redisLog.has(line) {
		t.Errorf("go-redis does not log %q; the Ping ends with %v", line, err)
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
