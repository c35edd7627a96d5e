// Package doctor examines the servers of locks and of sessions, and says what endangers them.
//
//	findings := doctor.Examine(ctx, doctor.Services{LockURL: "redis://localhost:6379/0", Locker: locker})
//
// It connects to each server, reads its settings and its state, and judges them, see redis.go and
// postgres.go. Further checks compare servers: the Sentinels, the store and its locks. All of them only
// read. The rights of a Redis user are tried by commands without an effect, see rights.go.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/internal/settings"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// answerLimit bounds the questions to one server.
const answerLimit = 5 * time.Second

// Level says how bad a finding is.
type Level string

// The levels, from the best to the worst.
const (
	OK      Level = "ok"
	Note    Level = "note"    // worth knowing, or a setting that the user may not read
	Warning Level = "warning" // harms the locks under a fault, or makes them slow
	Problem Level = "problem" // locks fail, or may have two holders
)

// Finding is the result of one check. Means and Do are empty if the level is OK.
type Finding struct {
	Level  Level  `json:"level"`
	Check  string `json:"check"`
	Server string `json:"server,omitempty"` // host:port; empty: the check compares servers
	Found  string `json:"found"`
	Means  string `json:"means,omitempty"`
	Do     string `json:"do,omitempty"`
}

func ok(format string, args ...any) Finding {
	return Finding{Level: OK, Found: fmt.Sprintf(format, args...)}
}

// result is a finding that is not OK.
func result(level Level, found, means, do string) Finding {
	return Finding{Level: level, Found: found, Means: means, Do: do}
}

// report collects findings.
type report struct {
	findings []Finding
	examined map[string]bool // servers that have answered, by host:port
}

func (r *report) add(check, server string, f Finding) {
	f.Check, f.Server = check, server
	r.findings = append(r.findings, f)
}

// target is a service to examine.
type target struct {
	url       string // without the parameters of the Locker
	namespace string
	ttl       time.Duration
	store     bool // it keeps sessions, and not locks
}

// Services are what to examine. Without Sessions, the locks alone.
type Services struct {
	LockURL  string
	Locker   *distlock.Locker // of LockURL
	StoreURL string
	Sessions storedriver.Driver // of StoreURL
}

// Examine examines the servers. Every failure is a finding.
func Examine(ctx context.Context, s Services) []Finding {
	r := &report{examined: map[string]bool{}}
	opts := fencing.Options(s.Locker)
	lock := target{namespace: opts.Namespace, ttl: opts.TTL}
	lock.url, _, _ = lockurl.Split(s.LockURL)
	r.servers(ctx, lock)
	r.add("locks", "", answers(s.Locker.Ping(ctx)))
	if s.Sessions == nil {
		return r.findings
	}
	store := target{namespace: s.Sessions.Retention().Namespace, ttl: lock.ttl, store: true}
	store.url, _, _ = lockurl.Split(s.StoreURL)
	r.servers(ctx, store)
	_, err := s.Sessions.Ping(ctx)
	r.add("sessions", "", answers(err))
	r.add("namespace", "", namespaces(ctx, lock, s.Sessions))
	return r.findings
}

// answers is for the answer that each program gets, too.
func answers(err error) Finding {
	if err != nil {
		return result(Problem, err.Error(), "Every operation fails.", "Do what the text says.")
	}
	return ok("the service answers")
}

func hasScheme(url, schemes string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return slices.Contains(strings.Fields(schemes), scheme+"://")
}

// servers examines each server of a URL that lockurl has accepted.
func (r *report) servers(ctx context.Context, t target) {
	switch {
	case hasScheme(t.url, postgres.Schemes):
		r.postgres(ctx, t)
	case hasScheme(t.url, redlock.Schemes):
		r.quorum(ctx, t)
	default:
		r.redis(ctx, t)
	}
}

// settings compares the settings of a server with the advice that Ping gives, too.
func (r *report) settings(server string, advised []settings.Setting, found map[string]string, change string) {
	for _, s := range advised {
		switch value := found[s.Name]; {
		case value == s.Want:
			r.add("settings", server, ok("%s %s", s.Name, value))
		case value != "": // or the user may not read it
			level := Note
			if s.Severe {
				level = Problem
			}
			r.add("settings", server, result(level, s.Name+" "+value,
				strings.ToUpper(s.Harm[:1])+s.Harm[1:]+".", fmt.Sprintf(change, s.Name, s.Want)))
		}
	}
}

func noConnection(err error) Finding {
	return result(Problem, strings.Join(strings.Fields(err.Error()), " "),
		"The server serves no lock and no session.",
		"Start the server, or correct the URL: host, port, database, user, password, TLS. See docs/reference/errors.md.")
}
