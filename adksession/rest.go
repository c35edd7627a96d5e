package adksession

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/belugalock/belugalock/distlock"
)

// LockREST runs the requests POST …/run and …/run_sse of adkrest under the lock of their session. A busy session is
// answered with status 503 and Retry-After. The wait is that of the Options, and at most two thirds of the WriteTimeout of
// the http.Server.
func (s *Service) LockREST(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of := runOf(r)
		turns, err := s.turns(of.key())
		if err != nil || of.check() != nil { // adkrest refuses it, or it creates a session
			next.ServeHTTP(w, r)
			return
		}
		wait := s.opts.Wait
		if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
			if limit := server.WriteTimeout * 2 / 3; wait < 0 || wait > limit {
				wait = limit
			}
		}
		began := false
		_ = turns.Turn(r.Context(), func(ctx context.Context) error {
			began = true
			next.ServeHTTP(w, r.WithContext(ctx))
			return nil
		}, distlock.WithWait(wait))
		if !began {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the session is busy, or its lock cannot be had: retry later", http.StatusServiceUnavailable)
		}
	})
}

// runOf returns the session of a request that runs an agent. ⚑ It reads the first value of the body, as adkrest does: with the
// same tags, the same case of names, and the last of two equal names. The body stays whole.
func runOf(r *http.Request) id {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/run") && !strings.HasSuffix(r.URL.Path, "/run_sse") {
		return id{}
	}
	var request struct {
		App     string `json:"appName"`
		User    string `json:"userId"`
		Session string `json:"sessionId"`
	}
	var read bytes.Buffer
	err := json.NewDecoder(io.TeeReader(r.Body, &read)).Decode(&request)
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&read, r.Body), r.Body}
	if err != nil {
		return id{}
	}
	return id{request.App, request.User, request.Session}
}
