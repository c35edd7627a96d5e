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

// Program is a whole program on a page.
type Program struct {
	Page   string
	Line   int
	Source string
	Output string // of the block of the language output that follows
}

// Programs returns the whole programs of the page. Quotes of programs of the repository are not among them.
func (p Page) Programs() (all []Program) {
	for _, b := range p.blocks {
		switch {
		case b.lang == "go" && b.from == "" && strings.HasPrefix(b.text, "package main\n"):
			all = append(all, Program{Page: b.page, Line: b.line, Source: b.text})
		case b.lang == "output" && len(all) > 0:
			all[len(all)-1].Output += b.text
		}
	}
	return all
}

// Build builds a program for a server of the test's own, and returns the path of the binary. server is
// the address of a Redis, or the URL of a database of PostgreSQL.
func Build(t testing.TB, program, server string) string {
	t.Helper()
	address := "localhost:6379"
	if strings.Contains(server, "://") {
		address = databaseURL
	}
	if strings.Count(program, address) != 1 {
		t.Fatalf("the program should contain %s once", address)
	}
	return build(t, strings.Replace(program, address, server, 1))
}

// databaseURL is the address of the database of compose.yaml.
const databaseURL = "postgres://postgres:belugalock@localhost:5432/belugalock"

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
