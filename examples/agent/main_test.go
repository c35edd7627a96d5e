package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asProgram makes the test binary the program, so that the tested program has the race detector, too.
const asProgram = "BELUGALOCK_EXAMPLE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), asProgram+"=yes")
	return cmd
}

type outcome struct {
	stdout, stderr string
	code           int
}

func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	return begin(t, cmd)()
}

// begin starts a run. The function that begin returns waits for its end.
func begin(t *testing.T, cmd *exec.Cmd) func() outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("exit code %d\nstdout:\n%s\nstderr:\n%s", cmd.ProcessState.ExitCode(), &stdout, &stderr)
		}
	})
	return func() outcome {
		_ = cmd.Wait() // the exit code says how it ended
		return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	}
}

// row returns the numbers in a row of the table: without a lock, with a lock around Save, and with
// one around the whole turn.
func (o outcome) row(t *testing.T, title string) (runs [3]int) {
	t.Helper()
	m := regexp.MustCompile(`│ ` + regexp.QuoteMeta(title) + `[^│]*│ *(\d+) │ *(\d+) │ *(\d+) │`).FindStringSubmatch(o.stdout)
	if m == nil {
		t.Fatalf("the table has no row %q", title)
	}
	for i := range runs {
		runs[i], _ = strconv.Atoi(m[i+1])
	}
	return runs
}

// last returns the number in a row that is about the last run alone.
func (o outcome) last(t *testing.T, title string) int {
	t.Helper()
	m := regexp.MustCompile(`│ ` + regexp.QuoteMeta(title) + `[^│]*│ *– │ *– │ *(\d+) │`).FindStringSubmatch(o.stdout)
	if m == nil {
		t.Fatalf("the table has no row %q", title)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// checkReport is what every good run shows.
func checkReport(t *testing.T, got outcome, messages int) {
	t.Helper()
	if got.code != 0 {
		t.Fatalf("the exit code is %d, want 0", got.code)
	}
	if n := got.row(t, "messages of users"); n != [3]int{messages, messages, messages} {
		t.Errorf("%d messages, want %d in each run", n, messages)
	}
	damage := 0
	for _, title := range []string{"lost", "torn", "stale", "doubled", "out of order"} {
		n := got.row(t, title)
		damage += n[0]
		if n[2] != 0 {
			t.Errorf("with whole turns %d messages are %s", n[2], title)
		}
	}
	if damage == 0 {
		t.Error("without a lock nothing went wrong")
	}
	if n := got.row(t, "stale"); n[1] == 0 {
		t.Error("with a lock around Save alone no answer is stale")
	}
	for _, want := range []string{
		"stale writes refused", "wait for the lock, median", "With a lock around the whole turn",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the report does not show %q", want)
		}
	}
	for _, line := range strings.Split(got.stdout, "\n") {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("a line has %d columns, at most 80 are allowed: %s", n, line)
		}
	}
}

func TestAgent_showsDamageWithoutTheLockAndNoneWithIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.html")
	got := finish(t, program(t, "-turns", "30", "-report", path))
	checkReport(t, got, 3*30)
	for _, want := range []string{"no lock: 108 messages\n", "Save only: 108 messages\n", "whole turn: 108 messages\n"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("stderr does not say %q", want)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stale := got.row(t, "stale")
	row := fmt.Sprintf(`<td class="bad">%d</td><td class="bad">%d</td><td>0</td>`, stale[0], stale[1])
	if !bytes.Contains(page, []byte(row)) || !bytes.HasSuffix(page, []byte("</html>\n")) {
		t.Errorf("the page does not have %s, or no end", row)
	}
}

func TestAgent_oneInstanceAloneDoesNoDamage(t *testing.T) {
	t.Parallel()
	got := finish(t, program(t, "-instances", "1", "-turns", "10", "-sessions", "1"))
	if got.code != 0 || !strings.Contains(got.stdout, "Without a lock nothing went wrong this time") {
		t.Errorf("exit code %d, want 0 and a word about the missing damage", got.code)
	}
}

// Not parallel: it looks for goroutines, and sets the environment that instances inherit.
func TestCompare_leavesNoGoroutineBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Setenv(asProgram, "yes")
	cfg, err := parse([]string{"-turns", "5", "-instances", "2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(context.Background(), cfg); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := compare(ctx, cfg); err == nil || err.Error() != "interrupted" {
		t.Errorf("the error after ctx has ended is %v, want that it was interrupted", err)
	}
}
