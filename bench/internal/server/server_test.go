package server

import (
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStart_answersUntilStop(t *testing.T) {
	s, err := Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.Version, ".") {
		t.Errorf("its version is %q", s.Version)
	}
	s.Stop()
	if conn, err := net.Dial("tcp", s.Addr); err == nil {
		conn.Close()
		t.Error("it still listens after Stop")
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

func TestStart_saysHowToInstallTheServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context()); err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("got %v", err)
	}
}
