package election_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// Close does not wait for lead.
func TestRun_closedWhileLeading_nextLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.NewDriver()
		one := open(t, d, "one")
		first, firstEnds := campaign(t.Context(), one)
		old := <-first
		second, secondEnds := campaign(t.Context(), open(t, d, "two"))
		synctest.Wait()
		at := time.Now()
		if err := one.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := <-second
		took := time.Since(at)
		synctest.Wait() // the context ends in a goroutine of its own
		if took > time.Second || old.ctx.Err() == nil {
			t.Errorf("the next leader began after %s, the context of the older one: %v", took, old.ctx.Err())
		}
		old.end <- nil
		if err := <-firstEnds; !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("Run: %v, want ErrClosed", err)
		}
		next.end <- nil
		if err := <-secondEnds; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Run returns the result of lead. The lock expires, and the next instance leads.
func TestRun_L_failedRelease_atMostTTLPlus1s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.NewDriver()
		var log bytes.Buffer
		one := openLogged(t, d, "one", slog.NewTextHandler(&log, nil))
		first, firstEnds := campaign(t.Context(), one)
		old := <-first
		second, secondEnds := campaign(t.Context(), open(t, d, "two"))
		synctest.Wait()
		one.faults.Inject(cutOff)
		at := time.Now()
		old.end <- nil
		if err := <-firstEnds; err != nil {
			t.Errorf("Run: %v, want the result of lead", err)
		}
		next := <-second
		if took := time.Since(at); took > ttl+time.Second {
			t.Errorf("the next leader began after %s", took)
		}
		next.end <- nil
		if err := <-secondEnds; err != nil {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, errDown.Error()) {
			t.Errorf("the log has no line about the release:\n%s", text)
		}
	})
}

// logged is a log line of Run.
type logged struct {
	Level, Msg, Error string
	Led               bool
	Pause             time.Duration `json:"pause_ms"`
	LockKey           string        `json:"lock_key"`
}

// The pauses grow in an outage. After a campaign of a minute, they begin anew.
func TestRun_calmMinute_pausesBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.NewDriver()
		var log bytes.Buffer
		one := openLogged(t, d, "one", slog.NewJSONHandler(&log, nil))
		lines := func() (all []logged) {
			synctest.Wait() // the Locker logs in a goroutine
			for decoder := json.NewDecoder(&log); ; {
				var line logged
				if decoder.Decode(&line) != nil {
					return all
				}
				line.Pause *= time.Millisecond
				if strings.HasPrefix(line.Msg, "election: ") {
					all = append(all, line)
				}
			}
		}
		one.faults.Inject(cutOff)
		terms, ends := campaign(t.Context(), one)
		time.Sleep(time.Minute)
		one.faults.Inject(nil)
		first := <-terms
		all := lines()
		if len(all) < 5 {
			t.Fatalf("%d lines in a minute", len(all))
		}
		begin, last := all[0], all[len(all)-1]
		if begin.Pause > 100*time.Millisecond || last.Pause < 2500*time.Millisecond {
			t.Errorf("the first pause is %s, the last one %s", begin.Pause, last.Pause)
		}
		if begin.Level != "WARN" || begin.Led || !strings.Contains(begin.Error, errDown.Error()) || begin.LockKey == "" || begin.LockKey == name {
			t.Errorf("the first line is %+v", begin)
		}

		time.Sleep(time.Minute) // the calm
		one.faults.Inject(cutOff)
		<-first.ctx.Done()
		one.faults.Inject(nil)
		first.end <- nil
		second := <-terms
		if all = lines(); len(all) != 1 || all[0].Pause > 100*time.Millisecond || !all[0].Led {
			t.Errorf("after the calm: %+v", all)
		}
		second.end <- nil
		if err := <-ends; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
