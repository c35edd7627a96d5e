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
