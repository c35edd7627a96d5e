package docs

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Program returns the page's whole program, and what it prints according to the page, if that says so.
func (p Page) Program(t testing.TB) (program, output string) {
	t.Helper()
	for _, b := range p.blocks {
		switch {
		case b.lang == "go" && strings.HasPrefix(b.text, "package main\n"):
			program = b.text
		case b.lang == "output":
			output = b.text
		}
	}
	if program == "" {
		t.Fatalf("%s has no program", p.name)
	}
	return program, output
}

// Build builds a program for a server of the test's own, and returns the path of the binary. server is the
// address of a Redis, or the URL of a database of PostgreSQL.
func Build(t testing.TB, program, server string) string {
	t.Helper()
	address := "localhost:6379"
	if strings.Contains(server, "://") {
		address = "postgres://postgres:belugalock@localhost:5432/belugalock"
	}
	if strings.Count(program, address) != 1 {
		t.Fatalf("the program should contain %s once", address)
	}
	return build(t, strings.Replace(program, address, server, 1))
}

func build(t testing.TB, program string) string {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// Run runs a program that [Build] has built, and returns its standard output. It has to succeed,
// and to say nothing else.
func Run(t testing.TB, binary string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return stdout.String()
}
