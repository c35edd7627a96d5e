// Package release rehearses a release: it tags a scratch clone, and lets modules outside of the
// repository build with the tags.
package release

import (
	"archive/zip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/repo/docs"
)

const (
	module = "github.com/belugalock/belugalock"
	nested = module + "/lockedmemory/belugamemory"
	adk    = module + "/adksession"
)

// The rehearsal takes the last commit: git has no tag of a changed work tree.
func TestRelease_consumersBuildFromTheTags(t *testing.T) {
	dir := t.TempDir()
	clone, version := cloned(t, dir)
	run(t, clone, "scripts/release.sh", version)

	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-modcacherw -trimpath -mod=mod")
	proxies := "file://" + filepath.Join(run(t, dir, "go", "env", "GOMODCACHE"), "cache/download") + "," + run(t, dir, "go", "env", "GOPROXY")
	released := download(t, dir, clone, version)
	// The caches of this machine do not see the rehearsed version.
	t.Setenv("GOMODCACHE", filepath.Join(dir, "modcache"))
	t.Setenv("GOPROXY", "file://"+released+","+proxies)
	t.Setenv("GONOSUMDB", module+","+module+"/*")

	for _, path := range []string{module, nested, adk} {
		checkFiles(t, filepath.Join(released, path, "@v", version+".zip"), path+"@"+version+"/")
	}
	// Inside the repository the nested modules take the root beside them, as before the release.
	t.Run("contract", func(t *testing.T) {
		t.Setenv("GOWORK", filepath.Join(clone, "contract.work"))
		t.Setenv("GOFLAGS", "")
		run(t, clone, "go", "list", "-deps", "./lockedmemory/belugamemory", "./examples/beluga")
	})

	t.Run("redislock", func(t *testing.T) {
		consumer := consume(t, dir, "redislock", module+"@"+version, "package main\nimport _ \""+module+"/distlock/redislock\"\nfunc main() {}\n")
		compiled := strings.Fields(run(t, consumer, "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./..."))
		slices.Sort(compiled)
		compiled = slices.Compact(compiled)
		want := []string{module, "github.com/cespare/xxhash/v2", "github.com/redis/go-redis/v9", "go.uber.org/atomic", "golang.org/x/sys"}
		if !slices.Equal(compiled, want) {
			t.Errorf("a program with redislock compiles the modules %q, want %q", compiled, want)
		}
		sums := strings.Split(run(t, consumer, "cat", "go.sum"), "\n")
		t.Logf("go.mod:\n%s\ngo.sum has %d lines", run(t, consumer, "cat", "go.mod"), len(sums))
	})
	for name, place := range map[string]docs.Place{
		"quickstart": {Page: "docs/quickstart.md", Heading: "## Make a module"},
		"tracing":    {Page: "docs/howto/tracing-and-metrics.md", Heading: "## Switch it on"},
	} {
		t.Run(name, func(t *testing.T) {
			consumer := consume(t, dir, name, module+"@"+version, place.Blocks(t, "go")[0])
			if name != "quickstart" {
				return // without its servers, it is only built
			}
			if got, want := run(t, consumer, "go", "run", ".", "mem://", "hello"), "hello: I have seen 0 messages."; got != want {
				t.Errorf("the program printed %q, want %q", got, want)
			}
		})
	}
	t.Run("adksession", func(t *testing.T) {
		consume(t, dir, "adksession", adk+"@"+version, "package main\nimport _ \""+adk+"\"\nfunc main() {}\n")
	})
	t.Run("lockctl", func(t *testing.T) {
		bin := t.TempDir()
		t.Setenv("GOBIN", bin)
		t.Setenv("GOFLAGS", "-modcacherw -trimpath")
		run(t, dir, "go", "install", module+"/cmd/lockctl@"+version)
		if got := run(t, dir, filepath.Join(bin, "lockctl"), "--version"); !strings.Contains(got, version) {
			t.Errorf("lockctl --version printed %q, want %s", got, version)
		}
	})
	t.Run("beluga", func(t *testing.T) {
		contract := filepath.Join(clone, "lockedmemory/belugamemory/testdata/contract")
		program := docs.Place{Page: "docs/howto/beluga.md", Heading: "## Get a locked memory"}.Blocks(t, "go")[0]
		consumer := consume(t, dir, "beluga", nested+"@"+version, strings.ReplaceAll(program, "redis://localhost:6379", "mem://"),
			"-replace=github.com/lookatitude/beluga-ai/v2="+contract)
		if got := run(t, consumer, "go", "run", "."); !strings.HasSuffix(got, "ai 4 messages.") {
			t.Errorf("the program printed %q", got)
		}
	})
}

// A tag that exists ends the script before it changes anything.
func TestRelease_existingTag_noCommit(t *testing.T) {
	clone, version := cloned(t, t.TempDir())
	before := run(t, clone, "git", "rev-parse", "HEAD")
	for _, tag := range []string{version, "lockedmemory/belugamemory/" + version, "adksession/" + version} {
		run(t, clone, "git", "tag", tag)
		cmd := exec.Command("scripts/release.sh", version)
		cmd.Dir = clone
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "The tag "+tag+" exists") {
			t.Errorf("with the tag %s the script ends with %v: %s", tag, err, out)
		}
		if after := run(t, clone, "git", "rev-parse", "HEAD"); after != before {
			t.Fatalf("with the tag %s the script has committed", tag)
		}
		if all := run(t, clone, "git", "tag"); all != tag {
			t.Errorf("the tags are %q", all)
		}
		run(t, clone, "git", "tag", "-d", tag)
	}
}

// cloned clones the repository, and returns the version to release.
func cloned(t *testing.T, dir string) (clone, version string) {
	t.Helper()
	clone = filepath.Join(dir, "clone")
	run(t, dir, "git", "clone", "-q", "--no-tags", root(t), clone)
	t.Setenv("GIT_AUTHOR_NAME", "rehearsal")
	t.Setenv("GIT_AUTHOR_EMAIL", "rehearsal@localhost")
	t.Setenv("GIT_COMMITTER_NAME", "rehearsal")
	t.Setenv("GIT_COMMITTER_EMAIL", "rehearsal@localhost")
	return clone, newest(t, clone)
}

// The command of the README gets the newest commit. A clone of this repository stands in for that of GitHub.
func TestRelease_readmeGetsTheNewestCommit(t *testing.T) {
	commands := docs.Commands(t, "go", "get")
	if len(commands) == 0 || commands[0].Page != "README.md" {
		t.Fatalf("the commands of the pages are %v", commands)
	}
	dir := t.TempDir()
	clone, _ := cloned(t, dir)
	run(t, clone, "git", "checkout", "-q", "-B", "main")
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOPRIVATE", module)
	t.Setenv("GOPROXY", "file://"+filepath.Join(run(t, dir, "go", "env", "GOMODCACHE"), "cache/download")+","+run(t, dir, "go", "env", "GOPROXY"))
	t.Setenv("GOMODCACHE", filepath.Join(dir, "modcache"))
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "url.file://"+clone+".insteadOf")
	t.Setenv("GIT_CONFIG_VALUE_0", "https://"+module)
	reader := filepath.Join(dir, "reader")
	if err := os.Mkdir(reader, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, reader, "go", "mod", "init", "example.com/reader")
	run(t, reader, commands[0].Words[0], commands[0].Words[1:]...)
	commit := run(t, clone, "git", "rev-parse", "--short=12", "HEAD")
	if got := run(t, reader, "go", "list", "-m", module); !strings.HasSuffix(got, "-"+commit) {
		t.Errorf("the command gets %s, want the commit %s", got, commit)
	}
}

// download makes a proxy of the tags of the clone, as the go command reads them from a server.
func download(t *testing.T, dir, clone, version string) string {
	t.Helper()
	cache := filepath.Join(dir, "released")
	for _, path := range []string{module, nested, adk} {
		cmd := exec.Command("go", "mod", "download", path+"@"+version)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOMODCACHE="+cache, "GOPRIVATE="+module, "GOPROXY=off", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=url.file://"+clone+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+module)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go mod download %s@%s: %v\n%s", path, version, err, out)
		}
	}
	return filepath.Join(cache, "cache/download")
}

// consume makes a module of a program, adds the release to it, and builds it.
func consume(t *testing.T, dir, name, release, program string, edits ...string) string {
	t.Helper()
	consumer := filepath.Join(dir, name)
	err := errors.Join(os.Mkdir(consumer, 0o700), os.WriteFile(filepath.Join(consumer, "main.go"), []byte(program), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	run(t, consumer, "go", "mod", "init", "example.com/consumer")
	if len(edits) > 0 {
		run(t, consumer, "go", append([]string{"mod", "edit"}, edits...)...)
	}
	run(t, consumer, "go", "get", release)
	run(t, consumer, "go", "mod", "tidy")
	run(t, consumer, "go", "build", "-mod=readonly", "-o", t.TempDir()+"/", "./...")
	return consumer
}

// checkFiles checks that a module ships only files that its users may need.
func checkFiles(t *testing.T, path, prefix string) {
	t.Helper()
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	names, bytes := map[string]bool{}, uint64(0)
	for _, file := range archive.File {
		name := strings.TrimPrefix(file.Name, prefix)
		names[name] = true
		bytes += file.UncompressedSize64
		if file.UncompressedSize64 > 256<<10 {
			t.Errorf("%s has %d bytes", name, file.UncompressedSize64)
		}
		if slices.Contains(waste, filepath.Ext(name)) {
			t.Errorf("%s is no file for users", name)
		}
	}
	if !names["go.mod"] || !names["LICENSE"] {
		t.Errorf("%s has no go.mod or no LICENSE", prefix)
	}
	t.Logf("%s %d files, %d KiB", prefix, len(names), bytes>>10)
}

// waste are the endings of what programs, servers and editors leave behind.
var waste = []string{".test", ".prof", ".out", ".rdb", ".aof", ".pem", ".key", ".crt", ".log", ".env", ".orig", ".rej", ".exe", ".so"}

// newest returns the version of the first heading of a version in CHANGELOG.md.
func newest(t *testing.T, clone string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(clone, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindSubmatch(text)
	if found == nil {
		t.Fatal("CHANGELOG.md has no heading of a version")
	}
	return "v" + string(found[1])
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// run returns what a program prints, without space around it.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, problems.String())
	}
	return strings.TrimSpace(string(out))
}
