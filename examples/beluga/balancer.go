package main

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
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// balancer starts two instances, and each of them again after its death.
type balancer struct {
	addresses [2]atomic.Value // a string
	listened  atomic.Bool     // an instance has
	requests  atomic.Uint64
	stop      func()
}

// startInstances calls giveUp if an instance has ended three times, and none has listened: a flag is wrong.
func startInstances(giveUp func(error)) *balancer {
	b := &balancer{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range b.addresses {
		all.Go(func() {
			for starts := 1; ctx.Err() == nil; starts++ {
				err := b.instance(ctx, i)
				if starts == 3 && !b.listened.Load() {
					giveUp(fmt.Errorf("no instance listens, and an instance has ended %d times, the last time with: %w", starts, err))
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
	cmd := exec.Command(program, append(os.Args[1:], "-instance")...)
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
	defer context.AfterFunc(ctx, func() { _ = input.Close() })()
	if address, err := bufio.NewReader(output).ReadString('\n'); err == nil {
		b.addresses[i].Store(strings.TrimSpace(address))
		b.listened.Store(true)
	}
	return cmd.Wait()
}

var errNoInstance = errors.New("no instance accepts a connection")

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
	return nil, errNoInstance
}

// handler never sends a message twice: a dead instance may have stored it.
func (b *balancer) handler() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "instance"}) },
		Transport: &http.Transport{DialContext: b.dial, DisableKeepAlives: true},
		ModifyResponse: func(r *http.Response) error {
			if r.Header.Get("Content-Type") == "text/event-stream" {
				r.Body = &brokenOff{ReadCloser: r.Body}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, errNoInstance) {
				http.Error(w, gone, http.StatusBadGateway)
				return
			}
			w.Header().Set("Retry-After", "1")
			http.Error(w, errNoInstance.Error()+": send the message again", http.StatusServiceUnavailable)
		},
	}
}

const gone = "the instance is gone, and the message may be stored: look at the chat before you send it again"

// brokenOff ends a stream of events that breaks off with an event of its own.
type brokenOff struct {
	io.ReadCloser
	last io.Reader
}

func (b *brokenOff) Read(p []byte) (int, error) {
	if b.last != nil {
		return b.last.Read(p)
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.last, err = strings.NewReader("\n\nevent: error\ndata: \""+gone+"\"\n\n"), nil
	}
	return n, err
}
