package doctest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/testservers"
)

func TestReadme_programPrintsWhatItSays(t *testing.T) {
	program, output := programOf(t, "README.md")
	if got := runProgram(t, program, testservers.StartRedis(t).Addr()); got != output {
		t.Errorf("it printed %q, the README says %q", got, output)
	}
}

// It is run twice, as the page says it can be.
func TestTurns_programPrintsWhatItSays(t *testing.T) {
	program, output := programOf(t, "docs/turns.md")
	address := testservers.StartRedis(t).Addr()
	for range 2 {
		if got := runProgram(t, program, address); got != output {
			t.Errorf("it printed %q, the page says %q", got, output)
		}
	}
}

func TestReadme_turnsAreLostWithoutTheLock(t *testing.T) {
	program, output := programOf(t, "README.md")
	unlocked := strings.Replace(program, `locker.Do(ctx, "session-123", turn)`, "turn(ctx)", 1)
	if unlocked == program {
		t.Fatal("the call that the README speaks of is not in its program")
	}
	if got := runProgram(t, unlocked, testservers.StartRedis(t).Addr()); got == output || !strings.HasSuffix(got, " of 10 turns kept\n") {
		t.Errorf("it printed %q", got)
	}
}

func programOf(t *testing.T, page string) (program, output string) {
	t.Helper()
	for _, b := range readPage(t, page).blocks {
		switch {
		case b.lang == "go" && strings.HasPrefix(b.text, "package main\n"):
			program = b.text
		case b.lang == "output":
			output = b.text
		}
	}
	if program == "" || output == "" {
		t.Fatalf("%s has no program, or no output", page)
	}
	return program, output
}

// runProgram builds the program, with the address of a server of the test's own, and returns its standard output.
func runProgram(t *testing.T, program, server string) string {
	t.Helper()
	const address = `"localhost:6379"`
	if strings.Count(program, address) != 1 {
		t.Fatalf("the program should contain %s once", address)
	}
	program = strings.Replace(program, address, `"`+server+`"`, 1)
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return stdout.String()
}
