//go:build unix && !aix

package postgres

import (
	"net"
	"testing"
	"time"
)

// A reader of pgx may wait on a connection that is in the pool.
func TestHasInput_anotherReaderWaits_returns(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(10*time.Second, func() { _ = peer.Close() }).Stop()
	read := make(chan error)
	go func() { _, err := conn.Read(make([]byte, 1)); read <- err }()
	for range 100 {
		if hasInput(conn) {
			t.Fatal("there is input, or the reader was waited for")
		}
		time.Sleep(time.Millisecond) // the reader waits by then
	}
	_ = peer.Close()
	<-read
	for !hasInput(conn) { // the end of the stream
	}
}
