package redislock

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestBatch_C_errorOfOneLock_isItsOwn(t *testing.T) {
	options := onNode(t)
	client := redis.NewUniversalClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	ctx := t.Context()
	owners := []string{strings.Repeat("a", 32), strings.Repeat("b", 32), strings.Repeat("c", 32)}
	locks := []string{"n:{1}:lock", "n:{2}:lock", "n:{3}:lock"}
	client.RPush(ctx, locks[1], "theirs")
	acquired, err := acquireBatch.Script.Run(ctx, client, locks, 30_000+newGrant, owners[0], "{}", owners[1], "{}", owners[2], "{}").Slice()
	if err != nil || len(acquired) != 3 {
		t.Fatal(acquired, err)
	}
	for i, reply := range acquired {
		parts, granted := reply.([]any)
		failed, _ := reply.(error)
		if i == 1 && (failed == nil || !strings.Contains(failed.Error(), "WRONGTYPE")) || i != 1 && (!granted || parts[0] != "granted") {
			t.Errorf("lock %d: %v", i, reply)
		}
	}
	released, err := releaseBatch.Script.Run(ctx, client, locks, owners[0], owners[1], owners[2]).Slice()
	if err != nil || len(released) != 3 || released[0] != "released" || released[2] != "released" {
		t.Fatal(released, err)
	}
	if failed, _ := released[1].(error); failed == nil || !strings.Contains(failed.Error(), "WRONGTYPE") {
		t.Errorf("%v", released[1])
	}
}
