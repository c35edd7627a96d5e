// Package leaks finds goroutines that outlive the tests of a package which works with go-redis.
package leaks

import (
	"testing"

	"go.uber.org/goleak"
)

// goRedis are goroutines of go-redis that sleep for up to a second before they notice that their client is closed.
var goRedis = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1"),
}

// VerifyTestMain is goleak's, but for these.
func VerifyTestMain(m *testing.M) { goleak.VerifyTestMain(m, goRedis...) }
