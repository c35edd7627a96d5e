package docs

import (
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// The table of errors has every sentinel and every error type.
func TestErrors_everySentinelHasARow(t *testing.T) {
	text := ""
	for _, row := range Errors.Table(t) {
		text += row[0] + "\n"
	}
	for _, name := range []string{"distlock", "election", "lockedmemory", "lockurl", "memlock", "memstore", "pglock", "pgstore", "redislock", "redisstore", "redlock", "sessionstore", "tracing"} {
		for declared := range indexOf(t).packages[name].names {
			isError := strings.HasPrefix(declared, "Err") || strings.HasSuffix(declared, "Error") || strings.HasSuffix(declared, "Errors")
			if isError && token.IsExported(declared) && !regexp.MustCompile(`\b`+name+`\.`+declared+`\b`).MatchString(text) {
				t.Errorf("%s.%s is not in the table of %s", name, declared, Errors.Page)
			}
		}
	}
}

// The tests that the pages name exist.
func TestDocs_namedTestsExist(t *testing.T) {
	tests := indexOf(t).tests
	named := 0
	for _, p := range AllPages(t) {
		for i, line := range p.lines {
			for _, name := range testName.FindAllStringSubmatch(line, -1) {
				named++
				if !tests[name[1]] {
					t.Errorf("%s:%d: there is no test %s", p.name, i+1, name[1])
				}
			}
		}
	}
	if named == 0 {
		t.Error("no page names a test")
	}
}

// A test, or a part of a suite, in backquotes.
var testName = regexp.MustCompile("`(Test[A-Z]\\w*|[A-Z]\\d?_\\w+)`")
