// Package server runs a redis-server of its own for as long as a benchmark takes.
package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/childproc"
	"github.com/belugalock/belugalock/internal/testservers"
)

const (
	startTimeout = 10 * time.Second
	stopTimeout  = 3 * time.Second
	portAttempts = 10
)

var errPortTaken = errors.New("the port was taken by another process")

// Server is a redis-server without persistence on a port of the loopback interface.
type Server struct {
	Addr    string
	Version string

	cmd    *exec.Cmd
	dir    string
	exited chan struct{} // closed once the server is gone and reaped
	log    []string      // what it has written until it was ready
}

// Start starts redis-server, which has to be on PATH, and returns once it is ready. Stop it.
func Start(ctx context.Context) (*Server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("redis-server is not on PATH: install it, on Debian and Ubuntu with `apt-get install redis-server`, " +
			"with Homebrew by `brew install redis`")
	}
	for range portAttempts {
		var s *Server
		if s, err = start(ctx, program); err == nil {
			return s, nil
		}
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, fmt.Errorf("start redis-server: %w", err)
}

func start(ctx context.Context, program string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "belugalock-bench-")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir, exited: make(chan struct{})}
	s.cmd = exec.Command(program, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no")
	// Ctrl-C in a terminal is not for the server, which is stopped when nobody needs it any more.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ready := make(chan bool, 1)
	err = childproc.Start(s.cmd, func() {
		defer close(s.exited)
		s.read(out, ready)
		_ = s.cmd.Wait() // how it ended is in cmd.ProcessState
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.await(ctx, ready); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// read takes in what the server writes, to its end, and says whether it became ready.
func (s *Server) read(out io.Reader, ready chan<- bool) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		s.log = append(s.log, lines.Text())
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			ready <- true
			_, _ = io.Copy(io.Discard, out)
			return
		}
	}
	ready <- false
}

func (s *Server) await(ctx context.Context, ready <-chan bool) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case ok := <-ready:
		if !ok {
			<-s.exited
			text := strings.Join(s.log, "\n")
			if strings.Contains(text, "Failed listening on port") {
				return errPortTaken
			}
			return fmt.Errorf("it ended before it was ready: %v\n%s", s.cmd.ProcessState, text)
		}
	case <-timeout.C:
		return fmt.Errorf("not ready within %s", startTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	s.Version = info["Server"]["redis_version"]
	return nil
}

// Stop ends the server and removes what it has left.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-s.exited:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	_ = os.RemoveAll(s.dir)
}

// freePort returns a port that nothing listened on a moment ago.
func freePort() (int, error) {
	l, err := testservers.Listen()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
