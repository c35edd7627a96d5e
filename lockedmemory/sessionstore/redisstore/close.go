package redisstore

import (
	"context"
	"encoding/hex"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Close implements storedriver.Driver.
func (s *sessions) Close(ctx context.Context, c storedriver.CloseRequest) (storedriver.Verdict, error) {
	id, _ := hex.DecodeString(c.ID) // both are hashes, see storedriver.HashID
	by, _ := hex.DecodeString(c.By)
	keys, args := s.access(storedriver.Access{Session: c.Session, Fence: c.Mark}, "", true)
	args = append(args, s.keep.RememberIDs.Milliseconds(), string(id), string(by), c.Below, c.Stop)
	return s.verdict(ctx, s.scripts.close, append(keys, s.keys(c.Session).inbox), args)
}
