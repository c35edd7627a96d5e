// Package loglimit bounds the log lines that a fault may cause.
package loglimit

import (
	"sync"
	"time"
)

// Most is how many lines with one message pass in a Period.
const (
	Most   = 10
	Period = time.Minute
)

// Limit lets [Most] of the lines with one message pass in a [Period]. Two lines with the same message and
// other attributes are of one kind. Messages must be constants: the Limit keeps each of them. The zero
// Limit is ready.
type Limit struct {
	mu    sync.Mutex
	kinds map[string]kind
}

// kind is the lines with one message.
type kind struct {
	since   time.Time // when the period began
	passed  int       // in the period
	leftOut int       // since the last line that passed
}

// Pass reports whether a line passes, and how many lines were left out before it.
func (l *Limit) Pass(message string, now time.Time) (leftOut int, passes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = make(map[string]kind)
	}
	k := l.kinds[message]
	if now.Sub(k.since) >= Period {
		k.since, k.passed = now, 0
	}
	if passes = k.passed < Most; passes {
		k.passed++
		leftOut, k.leftOut = k.leftOut, 0
	} else {
		k.leftOut++
	}
	l.kinds[message] = k
	return leftOut, passes
}
