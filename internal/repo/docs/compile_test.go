package docs

import "testing"

var code = Code{
	Given: map[string]string{
		"answer":    "func(context.Context) error",
		"client":    "*redis.Client",
		"ctx":       "context.Context",
		"id":        "string",
		"lease":     "*distlock.Lease",
		"lock":      "*distlock.Lock",
		"locker":    "*distlock.Locker",
		"mem":       "lockedmemory.Memory[string, string]",
		"memory":    "*lockedmemory.LockedMemory[string, string]",
		"newDriver": "func(dir string) driver.Driver",
		"model":     "func(ctx context.Context, history []string, question string) (string, error)",
		"place":     "lockedmemory.Place",
		"pool":      "*pgxpool.Pool",
		"question":  "string",
		"server":    "*http.Server",
		"session":   "lockedmemory.KeyFunc",
		"store":     "*sessionstore.Store[string, string]",
		"t":         "*testing.T",
		"tenant":    "string",
	},
	Importable: map[string]string{
		"context":       "context",
		"errors":        "errors",
		"fmt":           "fmt",
		"http":          "net/http",
		"log":           "log",
		"slog":          "log/slog",
		"os":            "os",
		"slices":        "slices",
		"sql":           "database/sql",
		"strings":       "strings",
		"signal":        "os/signal",
		"syscall":       "syscall",
		"synctest":      "testing/synctest",
		"memlock":       "github.com/belugalock/belugalock/distlock/memlock",
		"memstore":      "github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore",
		"testing":       "testing",
		"time":          "time",
		"redis":         "github.com/redis/go-redis/v9",
		"pgx":           "github.com/jackc/pgx/v5",
		"pgxpool":       "github.com/jackc/pgx/v5/pgxpool",
		"prometheus":    "github.com/prometheus/client_golang/prometheus",
		"promhttp":      "github.com/prometheus/client_golang/prometheus/promhttp",
		"otelprom":      "go.opentelemetry.io/otel/exporters/prometheus",
		"sdkmetric":     "go.opentelemetry.io/otel/sdk/metric",
		"sdktrace":      "go.opentelemetry.io/otel/sdk/trace",
		"otlptracehttp": "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp",
		"distlock":      "github.com/belugalock/belugalock/distlock",
		"driver":        "github.com/belugalock/belugalock/distlock/driver",
		"drivertest":    "github.com/belugalock/belugalock/distlock/drivertest",
		"lockurl":       "github.com/belugalock/belugalock/distlock/lockurl",
		"redislock":     "github.com/belugalock/belugalock/distlock/redislock",
		"redlock":       "github.com/belugalock/belugalock/distlock/redlock",
		"pglock":        "github.com/belugalock/belugalock/distlock/pglock",
		"lockedmemory":  "github.com/belugalock/belugalock/lockedmemory",
		"sessionstore":  "github.com/belugalock/belugalock/lockedmemory/sessionstore",
		"redisstore":    "github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore",
		"pgstore":       "github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore",
		"tracing":       "github.com/belugalock/belugalock/tracing",
	},
	// The module tracing/collectortest has it, and runs the program that needs it.
	Without: []string{"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"},
}

func TestDocs_codeCompiles(t *testing.T) {
	t.Parallel()
	code.Compiles(t, Pages(t)...)
}
