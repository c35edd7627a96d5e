package memstore

import (
	"context"
	"errors"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Close implements storedriver.Driver.
func (s *sessions) Close(context.Context, storedriver.CloseRequest) (storedriver.CloseReply, error) {
	return storedriver.CloseReply{}, errors.ErrUnsupported
}
