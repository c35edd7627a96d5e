package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belugalock/belugalock/distlock/driver"
)

// pageSize is how many locks one request reads at most. A command stops after maxPages requests, or after
// limit/pageSize if that is more. Pages can be empty.
const (
	pageSize = 100
	maxPages = 1000
)

// lock is a lock as JSON shows it. Durations are in milliseconds.
type lock struct {
	Key     string   `json:"key"`
	Held    bool     `json:"held"`
	Holder  string   `json:"holder"`
	Age     int64    `json:"age_ms"`
	TTL     int64    `json:"ttl_ms"` // negative: it does not expire
	Waiters int      `json:"waiters"`
	Token   int64    `json:"token"`
	Trace   string   `json:"trace_id"`
	Queue   []waiter `json:"queue,omitempty"`
}

type waiter struct {
	Ticket int64  `json:"ticket"`
	Holder string `json:"holder"`
	Alive  int64  `json:"alive_ms"`
	Trace  string `json:"trace_id"`
}

func lockOf(l driver.Listed) lock {
	s := l.State
	shown := lock{Key: l.Name.Key, Held: s.Held, Holder: s.Holder, Age: s.Age.Milliseconds(), TTL: s.TTL.Milliseconds(),
		Waiters: s.Waiters, Token: s.Fence, Trace: traceID(s.Metadata)}
	for _, w := range l.Queue {
		shown.Queue = append(shown.Queue, waiter{w.Ticket, w.Holder, w.Alive.Milliseconds(), traceID(w.Metadata)})
	}
	return shown
}

// traceID returns the trace of a W3C traceparent, or "".
func traceID(metadata map[string]string) string {
	parts := strings.Split(metadata["traceparent"], "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return ""
	}
	return parts[1]
}

const noAnswer = "the service does not answer: "

// failed explains an error of a driver.
func failed(err error) error {
	switch {
	case err == nil, errors.Is(err, errors.ErrUnsupported):
		return err
	case errors.Is(err, driver.ErrForeign), errors.Is(err, driver.ErrRefused):
		return fmt.Errorf("the service refuses: %w", err)
	}
	return fmt.Errorf(noAnswer+"%w", err)
}

// ask makes one request within answerLimit.
func ask[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	reply, err := f(ctx)
	return reply, failed(err)
}

// locks reads up to limit locks. More says that it has not read all.
func (s *service) locks(ctx context.Context, limit int) (locks []lock, more bool, err error) {
	lister, ok := driver.As[driver.Lister](s.driver)
	if !ok {
		return nil, false, s.cannot("list its locks: use lockctl show with a key")
	}
	read := func(after string, room int) (locks []lock, next string, err error) {
		req := driver.ListRequest{Namespace: s.namespace, After: after, Limit: min(pageSize, room)}
		page, err := ask(ctx, func(ctx context.Context) (driver.ListReply, error) { return lister.List(ctx, req) })
		for _, l := range page.Names {
			locks = append(locks, lockOf(l))
		}
		return locks, page.Next, err
	}
	return paged(limit, func(l lock) string { return l.Key }, read)
}

// paged reads pages until it has limit items of different names, or has made its requests.
func paged[T any](limit int, name func(T) string, read func(after string, room int) (page []T, next string, err error),
) (items []T, more bool, err error) {
	seen, after := map[string]bool{}, ""
	for range max(maxPages, limit/pageSize) {
		page, next, err := read(after, limit-len(items))
		if err != nil {
			return nil, false, err
		}
		for _, item := range page {
			if !seen[name(item)] {
				items = append(items, item)
			}
			seen[name(item)] = true
		}
		if after = next; next == "" || len(items) >= limit {
			break
		}
	}
	return items[:min(limit, len(items))], after != "" || len(items) > limit, nil
}

func (s *service) cannot(what string) error {
	return fmt.Errorf("the backend %q cannot %s (%w)", s.driver.Capabilities().Backend, what, errors.ErrUnsupported)
}

func (t *tool) listCommand() *cobra.Command {
	var longest bool
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks that are held or awaited",
		Long: "List the locks of a namespace that are held or awaited.\n" +
			"The command reads pages, so the list is not of one moment.",
		Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			locks, more, err := s.locks(cmd.Context(), limit)
			if err != nil {
				return err
			}
			order(locks, longest)
			if more {
				t.say("there are more locks than these %d: raise --limit to read all", len(locks))
			}
			return t.print(map[string]any{"locks": orEmpty(locks), "more": more}, func() string {
				if len(locks) == 0 {
					return fmt.Sprintf("No lock is held in the namespace %q.", s.namespace)
				}
				return lockTable(locks)
			})
		},
	}
	cmd.Flags().BoolVar(&longest, "longest", false, "the lock that is held longest first; otherwise by key")
	cmd.Flags().IntVar(&limit, "limit", 10_000, "the most locks to read")
	return cmd
}

// order sorts by key, or by age.
func order(locks []lock, longest bool) {
	slices.SortFunc(locks, func(a, b lock) int {
		if longest && a.Age != b.Age {
			return cmp.Compare(b.Age, a.Age)
		}
		return cmp.Compare(a.Key, b.Key)
	})
}

// orEmpty keeps JSON from writing null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func lockTable(locks []lock) string {
	var rows [][]string
	for _, l := range locks {
		row := []string{l.Key, "(free)", "", "", strconv.Itoa(l.Waiters), "", ""}
		if l.Held {
			row = []string{l.Key, l.Holder, millis(l.Age), ttl(l.TTL), strconv.Itoa(l.Waiters),
				strconv.FormatInt(l.Token, 10), l.Trace}
		}
		rows = append(rows, row)
	}
	return tabulate([]column{{name: "KEY"}, {name: "HOLDER"}, {name: "AGE", right: true},
		{name: "TTL", right: true}, {name: "WAITERS", right: true}, {name: "TOKEN", right: true},
		{name: "TRACE ID"}}, rows)
}

func millis(ms int64) string { return span(time.Duration(ms) * time.Millisecond) }

func ttl(ms int64) string {
	if ms < 0 {
		return "no expiry"
	}
	return millis(ms)
}
