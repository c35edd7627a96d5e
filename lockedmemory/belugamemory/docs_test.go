package belugamemory_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
)

const (
	belugaPath = "github.com/lookatitude/beluga-ai/v2/"
	modulePath = "github.com/belugalock/belugalock/"
)

// Sections that the tests compare with the code.
var (
	programPlace        = docs.Place{Page: "docs/howto/beluga.md", Heading: "## Get a locked memory"}
	configurationsPlace = docs.Place{Page: "docs/reference/beluga.md", Heading: "## Configuration of a memory"}
	optionsPlace        = docs.Place{Page: "docs/reference/beluga.md", Heading: "### Options"}
	runnerOptionsPlace  = docs.Place{Page: "docs/reference/beluga.md", Heading: "### Options of a Runner"}
	repetitionsPlace    = docs.Place{Page: docs.Errors.Page, Heading: "## Safe repetitions"}
)

var docsCode = docs.Code{
	Given: map[string]string{
		"answer":    "schema.Message",
		"chatModel": "llm.ChatModel",
		"client":    "*redis.Client",
		"ctx":       "context.Context",
		"messageID": "string",
		"locker":    "*distlock.Locker",
		"mem":       "memory.Memory",
		"model":     "func(ctx context.Context, history []schema.Message, question schema.Message) (schema.Message, error)",
		"question":  "schema.Message",
		"runner":    "*belugarunner.Runner",
		"service":   "runtime.SessionService",
		"assistant": "agent.Agent",
		"sessionID": "string",
		"task":      "func(ctx context.Context) error",
		"tenant":    "string",
		"turn":      "func(ctx context.Context) error",
		"worker":    "core.Lifecycle",
	},
	Importable: map[string]string{
		"context": "context", "errors": "errors", "fmt": "fmt", "time": "time", "redis": "github.com/redis/go-redis/v9",
		"agent": belugaPath + "agent", "config": belugaPath + "config", "core": belugaPath + "core", "llm": belugaPath + "llm",
		"memory": belugaPath + "memory", "runtime": belugaPath + "runtime", "schema": belugaPath + "schema",
		"distlock": modulePath + "distlock", "election": modulePath + "distlock/election", "lockurl": modulePath + "distlock/lockurl",
		"lockedmemory": modulePath + "lockedmemory", "sessionstore": modulePath + "lockedmemory/sessionstore",
		"redislock": modulePath + "distlock/redislock", "redisstore": modulePath + "lockedmemory/sessionstore/redisstore",
		"belugamemory": modulePath + "lockedmemory/belugamemory", "tracing": modulePath + "tracing",
		"belugarunner": modulePath + "lockedmemory/belugamemory/belugarunner",
	},
	Beluga: true,
}

func TestDocs_codeCompiles(t *testing.T) {
	t.Parallel()
	docsCode.Compiles(t, docs.Pages(t)...)
}

// With the contract instead of Beluga.
func TestDocs_programRunsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	programPlace.RunsTwiceAtOnce(t, servers.SharedServer().Addr(), "ai", "go work edit -replace "+strings.TrimSuffix(belugaPath, "/")+
		"=../belugalock/lockedmemory/belugamemory/testdata/contract")
}

// The tables have exactly the options. The defaults in the tables and the configurations on the page are
// allowed.
func TestDocs_optionsAndConfigurations(t *testing.T) {
	firsts := func(rows [][]string) (names []string) {
		for _, row := range rows {
			names = append(names, row[0])
		}
		return names
	}
	var fields []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[belugarunner.Options]()) {
		fields = append(fields, field.Name)
	}
	options := optionsPlace.Table(t)
	if got, want := firsts(options), belugamemory.OptionNames(); !slices.Equal(got, want) {
		t.Errorf("of a memory, the page has %q, the package %q", got, want)
	}
	if got := firsts(runnerOptionsPlace.Table(t)); !slices.Equal(got, fields) {
		t.Errorf("of a Runner, the page has %q, the package %q", got, fields)
	}
	texts := configurationsPlace.Blocks(t, "json")
	for _, row := range options {
		if row[2] != "none" {
			texts = append(texts, fmt.Sprintf(`{"options": {%q: %s}}`, row[0], row[2]))
		}
	}
	for _, text := range texts {
		var cfg config.ProviderConfig
		err := json.Unmarshal([]byte(text), &cfg)
		cfg.BaseURL = "mem://"
		mem, failure := belugamemory.New(cfg)
		if err != nil || failure != nil {
			t.Errorf("%v, %v\n%s", err, failure, text)
			continue
		}
		must(t, mem.Close(t.Context()))
	}
}

// After a lost reply, Retryable says of each call what the table says.
func TestDocs_repetitions(t *testing.T) {
	rows := repetitionsPlace.Table(t)
	for call, op := range map[string]string{"Answer": "answer", "SaveOnce": "save_once", "Save": "save", "Append": "append",
		"Replace": "replace", "Clear": "clear", "Delete": "delete"} {
		i := slices.IndexFunc(rows, func(row []string) bool {
			calls := strings.FieldsFunc(row[0], func(r rune) bool { return strings.ContainsRune("`, ", r) })
			return slices.Contains(calls, call) && calls[0] != "Turn"
		})
		if i < 0 {
			t.Errorf("the table has no %s", call)
			continue
		}
		err := codes.Of("belugamemory."+op, distlock.ErrOutcomeUnknown)
		if safe := rows[i][2] == "yes"; belugamemory.Retryable(err) != safe || core.IsRetryable(err) != safe {
			t.Errorf("%s: the table says %q, Retryable %t", call, rows[i][2], belugamemory.Retryable(err))
		}
	}
}

// The table of errors has every sentinel with its code.
func TestDocs_errors(t *testing.T) {
	rows := docs.Errors.Table(t)
	check := func(sentinel string, code core.ErrorCode) {
		if !slices.ContainsFunc(rows, func(row []string) bool {
			return strings.Contains(row[0], sentinel) && row[1] == string(code) &&
				strings.HasPrefix(row[4], "yes") == core.IsRetryable(core.NewError("", code, "", nil))
		}) {
			t.Errorf("the table has no %s with %s, or is wrong about trying again", sentinel, code)
		}
	}
	for sentinel, code := range belugamemory.Codes() {
		check(sentinel, code)
	}
	check("distlock.ErrOutcomeUnknown", core.ErrProviderDown) // of Answer and SaveOnce
	check("distlock.ErrRefused", core.ErrAuth)                // of a right
}

// A program with a memory alone does not compile Beluga's Runner and agents.
func TestImports_ofBeluga(t *testing.T) {
	const module, beluga = "github.com/belugalock/belugalock/lockedmemory/belugamemory",
		"github.com/lookatitude/beluga-ai/v2/"
	for name, without := range map[string][]string{
		"":                   {"agent", "runtime"},
		"/internal/codes":    {"agent", "runtime", "memory", "schema"},
		"/internal/packed":   {""},
		"/internal/services": {"agent", "runtime", "memory", "schema"},
	} {
		for _, path := range reached(t, module+name) {
			for _, no := range without {
				if path == beluga+no || no == "" && strings.HasPrefix(path, beluga) {
					t.Errorf("%s reaches %s", module+name, path)
				}
			}
		}
	}
	if !slices.Contains(reached(t, module+"/belugarunner"), beluga+"runtime") {
		t.Error("belugarunner does not reach Beluga's runtime, so this test can see nothing")
	}
}

// reached returns the packages that a package compiles.
func reached(t *testing.T, name string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Fields(string(out))
}
