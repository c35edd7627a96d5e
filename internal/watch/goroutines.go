package watch

import (
	"testing"

	"go.uber.org/goleak"
)

// goRedis are goroutines of go-redis that sleep for up to a second before they notice that their client is closed.
var goRedis = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1"),
}

// VerifyTestMain is goleak's, for packages that work with go-redis.
func VerifyTestMain(m *testing.M) { goleak.VerifyTestMain(m, goRedis...) }
