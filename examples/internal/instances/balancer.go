package instances

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// balancer starts two instances, and each of them again after its death.
type balancer struct {
	flags     []string        // of each instance
	addresses [2]atomic.Value // a string
	processes [2]atomic.Pointer[os.Process]
	listened  atomic.Bool   // an instance has
	listening chan struct{} // has a value for each instance that has listened
	requests  atomic.Uint64
	stop      func()
}

// startInstances calls giveUp if an instance has ended three times, and none has listened: a flag is wrong.
func startInstances(flags []string, giveUp func(error)) *balancer {
	b := &balancer{flags: flags, listening: make(chan struct{}, len(balancer{}.addresses))}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range b.addresses {
		all.Go(func() {
			for starts := 1; ctx.Err() == nil; starts++ {
				err := b.instance(ctx, i)
				if starts == 3 && !b.listened.Load() {
					giveUp(fmt.Errorf("no instance listens, and one has ended %d times, the last time with: %w", starts, err))
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
					log.Printf("an instance has ended (%v) and starts again", err)
				}
			}
		})
	}
	b.stop = func() { cancel(); all.Wait() }
	return b
}

// instance runs an instance until its end. After ctx it closes the input of the instance.
func (b *balancer) instance(ctx context.Context, i int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, b.flags...)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.processes[i].Store(cmd.Process)
	defer context.AfterFunc(ctx, func() { _ = input.Close() })()
	if address, err := bufio.NewReader(output).ReadString('\n'); err == nil {
		b.addresses[i].Store(strings.TrimSpace(address))
		b.listened.Store(true)
		select {
		case b.listening <- struct{}{}:
		default: // it has listened before
		}
	}
	return cmd.Wait()
}

// await waits until both instances have listened, or for ctx.
func (b *balancer) await(ctx context.Context) {
	for range b.addresses {
		select {
		case <-b.listening:
		case <-ctx.Done():
		}
	}
}

// dial connects to the next instance that accepts a connection.
func (b *balancer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	for range b.addresses {
		address, ok := b.addresses[b.requests.Add(1)%uint64(len(b.addresses))].Load().(string)
		if !ok {
			continue
		}
		if conn, err := new(net.Dialer).DialContext(ctx, network, address); err == nil {
			return conn, nil
		}
	}
	return nil, errors.New("no instance accepts a connection")
}

// handler never sends a request twice: its client knows when that is safe. ⚑ The stream of a dead instance
// breaks off.
func (b *balancer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /instances/{pid}/kill", b.kill)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "instance"}) },
		Transport: &http.Transport{DialContext: b.dial, DisableKeepAlives: true},
		ErrorLog:  log.New(io.Discard, "", 0), // the log has the ends of instances
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "no instance answers", http.StatusServiceUnavailable)
		},
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		// ⚑ Else the start of a response, as adkrest sends it at once, cuts off the end of the request.
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 does it always
		proxy.ServeHTTP(w, r)
	})
	return mux
}

// kill ends an instance by SIGKILL, so that the page and the tour can show it.
func (b *balancer) kill(w http.ResponseWriter, r *http.Request) {
	for i := range b.processes {
		if p := b.processes[i].Load(); p != nil && strconv.Itoa(p.Pid) == r.PathValue("pid") && p.Kill() == nil {
			return
		}
	}
	http.Error(w, "there is no such instance", http.StatusNotFound)
}
