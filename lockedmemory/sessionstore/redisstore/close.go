package redisstore

import (
	"context"
	"encoding/hex"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Close implements storedriver.Driver.
func (s *sessions) Close(ctx context.Context, c storedriver.CloseRequest) (reply storedriver.CloseReply, err error) {
	id, _ := hex.DecodeString(c.ID) // both are hashes, see storedriver.HashID
	by, _ := hex.DecodeString(c.By)
	keys, args := s.access(storedriver.Access{Session: c.Session, Fence: c.Mark}, "", true)
	args = append(args, s.keep.RememberIDs.Milliseconds(), string(id), string(by), c.Below, c.Stop)
	cmd, _ := s.scripts.close.Run(ctx, s.redis, append(keys, s.keys(c.Session).inbox), args...)
	words, err := cmd.Slice()
	if err != nil {
		return reply, s.explain(err)
	}
	r := replyOf(words)
	reply.Outcome, reply.Mark = storedriver.Outcome(r.Number()), r.Number()
	return reply, r.End()
}
