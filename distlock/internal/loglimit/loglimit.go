// Package loglimit bounds the log lines that a fault may cause.
//
//	logger := slog.New(loglimit.Handler(application.Handler()))
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Most is how many lines with one message pass in a Period.
const (
	Most   = 10
	Period = time.Minute
)

// Handler returns h with a limit: of the lines with one message, [Most] pass in a [Period]. The first line
// that passes after that has the attribute left_out, the number of lines in between. Two lines with
// the same message and other attributes are of one kind. Messages must be constants: the Handler keeps
// each of them.
func Handler(h slog.Handler) slog.Handler {
	return &handler{h, &limit{kinds: make(map[string]*kind)}}
}

type handler struct {
	slog.Handler
	limit *limit
}

func (h *handler) Handle(ctx context.Context, line slog.Record) error {
	leftOut, passes := h.limit.pass(line.Message, time.Now())
	switch {
	case !passes:
		return nil
	case leftOut > 0:
		line = line.Clone()
		line.AddAttrs(slog.Int("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, line)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limit}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limit}
}

type limit struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

// kind is the lines with one message.
type kind struct {
	since   time.Time // when the period began
	passed  int       // in the period
	leftOut int       // since the last line that passed
}

// pass reports whether a line passes, and how many lines were left out before it.
func (l *limit) pass(message string, now time.Time) (leftOut int, passes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[message]
	if k == nil {
		k = &kind{since: now}
		l.kinds[message] = k
	}
	if now.Sub(k.since) >= Period {
		k.since, k.passed = now, 0
	}
	if k.passed >= Most {
		k.leftOut++
		return 0, false
	}
	k.passed++
	leftOut, k.leftOut = k.leftOut, 0
	return leftOut, true
}
