package testservers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProcess_diesWithTheTestProcess(t *testing.T) {
	const asChild = "TESTSERVERS_CHILD"
	if os.Getenv(asChild) != "" {
		fmt.Printf("addr %s\n", StartRedis(t).Addr())
		io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent is gone
		return
	}

	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), asChild+"=1", "TMPDIR="+t.TempDir())
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	for lines := bufio.NewScanner(stdout); addr == "" && lines.Scan(); {
		_, addr, _ = strings.Cut(lines.Text(), "addr ")
	}
	child.Process.Kill()
	child.Wait()
	if addr == "" {
		t.Fatal("the child started no server")
	}

	Await(t, 10*time.Second, "the server of a killed test process is gone", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}
