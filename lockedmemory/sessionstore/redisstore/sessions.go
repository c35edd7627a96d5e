package redisstore

import (
	"context"
	"encoding/json"
	"fmt"

	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
)

// Sessions implements driver.Driver. Each page covers about 1,000 keys of one node.
func (s *service) Sessions(ctx context.Context, after string) (names []string, next string, err error) {
	var at redisconn.Scan
	if after != "" && json.Unmarshal([]byte(after), &at) != nil {
		return nil, "", fmt.Errorf("redisstore: %w: no page of sessions has returned this place", lockdriver.ErrNotDone)
	}
	prefix := s.keep.Namespace + ":"
	page, err := s.redis.Keys(ctx, at, prefix+"{", "}:log")
	if err != nil {
		return nil, "", s.explain(err)
	}
	for _, log := range page.Keys {
		if name, ok := redislock.KeyOf(log[len(prefix) : len(log)-len("log")]); ok {
			names = append(names, name)
		}
	}
	if page.Next != (redisconn.Scan{}) {
		text, _ := json.Marshal(page.Next)
		next = string(text)
	}
	return names, next, nil
}
