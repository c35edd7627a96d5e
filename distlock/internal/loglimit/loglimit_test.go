package loglimit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/loglimit"
)

func TestHandler_linesPerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(loglimit.Handler(slog.NewTextHandler(&log, nil)))
		var calls sync.WaitGroup
		for i := range 10_000 {
			calls.Go(func() { logger.With("call", i).WithGroup("of").Warn("broken") })
		}
		calls.Wait()
		logger.Warn("another kind")
		expect(t, &log, `msg=broken`, loglimit.Most, "left_out", 0)
		expect(t, &log, `msg="another kind"`, 1, "left_out", 0)

		time.Sleep(loglimit.Period)
		log.Reset()
		logger.Warn("broken")
		logger.Warn("broken")
		logger.Warn("another kind")
		expect(t, &log, "msg=broken", 2, fmt.Sprintf("left_out=%d", 10_000-loglimit.Most), 1)
		expect(t, &log, "msg=broken", 2, "left_out", 1)
	})
}

// expect checks how often two texts stand in the log.
func expect(t *testing.T, log *bytes.Buffer, line string, lines int, note string, notes int) {
	t.Helper()
	if n, m := strings.Count(log.String(), line), strings.Count(log.String(), note); n != lines || m != notes {
		t.Errorf("%s %d times, want %d; %s %d times, want %d: %.2000s", line, n, lines, note, m, notes, log)
	}
}
