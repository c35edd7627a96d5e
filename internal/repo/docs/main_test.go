package docs

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) {
	// Tests wait for servers and programs more than they work.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redis.SetLogger(&redisLog)
	leakcheck.VerifyTestMain(testservers.Sharing{M: m})
}

// redisLog keeps the lines of go-redis, of all tests.
var redisLog logLines

type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Printf(_ context.Context, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// has reports whether a line begins with the text.
func (l *logLines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool { return strings.HasPrefix(line, text) })
}
