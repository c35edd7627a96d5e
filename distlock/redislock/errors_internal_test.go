package redislock

import (
	"errors"
	"net"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
)

// A node that refuses connections is a lock service that is away; one of several is a fail-over.
func TestExplain_aRefusedConnectionIsTemporaryAmongSeveralNodes(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for on, temporary := range map[topology]bool{oneNode: false, sentinels: true, cluster: true} {
		err := explain(refused, on)
		if errors.Is(err, driver.ErrTemporary) != temporary || errors.Is(err, driver.ErrRefused) || !errors.Is(err, refused) {
			t.Errorf("%d: %v", on, err)
		}
	}
}
