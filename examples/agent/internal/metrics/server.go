package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Server serves the last metrics of all instances.
type Server struct {
	listener net.Listener
	server   http.Server
	served   chan error

	mu    sync.Mutex
	pages map[string]prometheus.GathererFunc // by the name of the instance
}

// Listen serves the metrics at an address such as ":9464" until Close.
func Listen(address string) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, served: make(chan error, 1), pages: map[string]prometheus.GathererFunc{}}
	mux := http.NewServeMux()
	// Only the OpenMetrics format has exemplars.
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.GathererFunc(s.gather), promhttp.HandlerOpts{EnableOpenMetrics: true}))
	s.server = http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { s.served <- s.server.Serve(listener) }()
	return s, nil
}

// URL is where the metrics are.
func (s *Server) URL() string {
	address := s.listener.Addr().(*net.TCPAddr)
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, fmt.Sprint(address.Port)) + "/metrics"
}

// Put takes a Line.Metrics in the place of the last one of that instance. An instance that was started
// again counts from zero, as Prometheus expects. Instances of different runs have different names.
func (s *Server) Put(instance string, page []byte) error {
	var families []*dto.MetricFamily
	for decoder := expfmt.NewDecoder(bytes.NewReader(page), expfmt.NewFormat(expfmt.TypeProtoDelim)); ; {
		family := &dto.MetricFamily{}
		if err := decoder.Decode(family); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("the metrics of %s: %w", instance, err)
		}
		families = append(families, family)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[instance] = func() ([]*dto.MetricFamily, error) { return families, nil }
	return nil
}

// gather joins the last metrics of all instances.
func (s *Server) gather() ([]*dto.MetricFamily, error) {
	var all prometheus.Gatherers
	s.mu.Lock()
	for _, page := range s.pages {
		all = append(all, page)
	}
	s.mu.Unlock()
	return all.Gather()
}

// Close stops the server.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close() // of a client that does not end its request
	}
	if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
