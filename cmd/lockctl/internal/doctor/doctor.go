// Package doctor examines the servers of locks and of sessions, and says what endangers them.
//
//	findings, err := doctor.Examine(ctx, "redis://localhost:6379/0", "")
//
// A server's answers become facts. The tables redisRules and postgresRules judge the facts of one
// server, see rules.go. Further checks compare servers: the Sentinels, the nodes of a Cluster or a
// quorum, the store and its locks. All of them only read. The rights of a Redis user are tried by
// commands without an effect, see rights.go.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/postgres"
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

var rank = map[Level]int{OK: 0, Note: 1, Warning: 2, Problem: 3}

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

// report collects findings. A check that has nothing to say returns an empty one.
type report struct{ findings []Finding }

func (r *report) add(check, server string, f Finding) {
	if f.Level != "" {
		f.Check, f.Server = check, server
		r.findings = append(r.findings, f)
	}
}

// target is a service to examine.
type target struct {
	url       string // without the parameters of the Locker
	namespace string
	ttl       time.Duration
	store     bool            // it keeps sessions, and not locks
	examined  map[string]bool // servers that have answered, by host:port
}

// Examine examines the service of lockURL, and that of storeURL unless this is empty. An invalid URL is
// refused with distlock.ErrInvalidOption. Every other failure is a finding.
func Examine(ctx context.Context, lockURL, storeURL string) ([]Finding, error) {
	r := &report{}
	rest, parameters := Split(lockURL)
	lock := target{url: rest, namespace: cmp.Or(parameters.Get("namespace"), "distlock"), examined: map[string]bool{}}
	locker, refused := lockurl.Open(ctx, lockURL, &distlock.Options{Logger: slog.New(slog.DiscardHandler)})
	if refused == nil {
		defer closeLocker(locker)
		lock.ttl = fencing.Options(locker).TTL
	} else if isQuorum(lock.url) {
		ttl, _ := time.ParseDuration(parameters.Get("ttl"))
		lock.ttl = cmp.Or(ttl, 30*time.Second)
	} else {
		return nil, refused
	}
	if err := r.servers(ctx, lock); err != nil {
		return nil, err
	}
	if refused != nil { // two nodes, one address twice, or a short restart_delay: the nodes are worth a look
		r.add("url", "", result(Problem, refused.Error(), "No program can use this URL.", "Correct the URL."))
	} else if len(lock.examined) > 0 {
		r.add("locks", "", locks(ctx, locker))
	}
	if storeURL == "" {
		return r.findings, nil
	}
	rest, parameters = Split(storeURL)
	store := target{url: rest, namespace: cmp.Or(parameters.Get("namespace"), "session"), ttl: lock.ttl, store: true, examined: lock.examined}
	if err := r.servers(ctx, store); err != nil {
		return nil, err
	}
	r.add("namespace", "", namespaces(ctx, lock, store))
	return r.findings, nil
}

func closeLocker(locker *distlock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	_ = locker.Close(ctx)
}

func isQuorum(url string) bool { return hasScheme(url, redlock.Schemes) }

func isPostgres(url string) bool { return hasScheme(url, postgres.Schemes) }

func hasScheme(url, schemes string) bool {
	scheme, _, _ := strings.Cut(url, "://")
	return slices.Contains(strings.Fields(schemes), scheme+"://")
}

// servers examines each server of a URL.
func (r *report) servers(ctx context.Context, t target) error {
	switch {
	case hasScheme(t.url, "mem://"):
		return fmt.Errorf("%w: mem:// keeps its locks in one process, which has no server to examine", distlock.ErrInvalidOption)
	case isPostgres(t.url):
		return r.postgres(ctx, t)
	case isQuorum(t.url) && !t.store:
		return r.quorum(ctx, t)
	}
	return r.redis(ctx, t)
}

// far is how far a token may be ahead of the clock without a reason to worry: a store raises tokens
// above its mark.
const far = time.Hour

// locks asks as every program does, and looks at the tokens of a page of locks.
func locks(ctx context.Context, locker *distlock.Locker) Finding {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if err := locker.Ping(ctx); err != nil {
		return result(Problem, err.Error(), "Every lock operation fails.", "Do what the text says.")
	}
	page, next, err := locker.List(ctx, "", 100)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, distlock.ErrRefused) {
		return ok("the lock service answers")
	} else if err != nil {
		return result(Warning, err.Error(), "A list of locks fails.", "Do what the text says.")
	}
	var ahead time.Duration
	for _, lock := range page {
		ahead = max(ahead, time.Until(time.UnixMicro(lock.Fence)))
	}
	if ahead > far {
		return result(Warning, fmt.Sprintf("the token of a lock is %v ahead of the clock", ahead.Round(time.Hour)),
			"A clock was ahead, or a store has a damaged mark. Tokens rise from there. 365 days ahead, they are refused.",
			"Compare the clocks of all servers, and let NTP keep them. Do not delete locks.")
	}
	more := ""
	if next != "" {
		more = " or more"
	}
	return ok("the lock service answers, and shows %d%s locks in the namespace %q", len(page), more,
		fencing.Options(locker).Namespace)
}

// Split takes the parameters of a Locker out of a URL, and returns all parameters.
func Split(rawURL string) (rest string, parameters url.Values) {
	rest, query, _ := strings.Cut(rawURL, "?")
	parameters, err := url.ParseQuery(query)
	if err != nil || strings.ContainsAny(query, "@#") { // perhaps a part of a password
		return rawURL, nil
	}
	others := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains([]string{"", "namespace", "ttl", "wait"}, name)
	})
	if len(others) > 0 {
		rest += "?" + strings.Join(others, "&")
	}
	return rest, parameters
}
