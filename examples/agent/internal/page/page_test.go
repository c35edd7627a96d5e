package page

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

// at makes a span from two moments in milliseconds.
func at(id, parent, name, instance string, from, to int, links ...string) balancer.Span {
	moment := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }
	return balancer.Span{ID: id, Parent: parent, Name: name, Instance: instance, Start: moment(from), End: moment(to), Links: links}
}

func turnOf(id, instance string, from, got, end int, links ...string) []balancer.Span {
	return []balancer.Span{ // in the order in which they finish
		at(id+"-acquire", id, "distlock.acquire", instance, from, got, links...),
		at(id+"-save", id, "lockedmemory.save_once", instance, got, end),
		at(id, "", "lockedmemory.answer", instance, from, end),
	}
}

// turn is what a turn leaves that had seen so many messages.
func turn(number int, instance string, seen int) []history.Message {
	return []history.Message{{Role: "user", Turn: number, Instance: instance}, {Role: "assistant", Turn: number, Instance: instance, Seen: seen}}
}

// comparison is one of a run in which one of two messages is stale, and one without damage.
func comparison() *report.Comparison {
	c := &report.Comparison{Plan: balancer.Plan{Instances: 2, Sessions: 1, Turns: 2}, Server: "a Redis", Began: time.Unix(0, 0).UTC()}
	for i, locked := range []report.Locked{report.NoLock, report.SaveOnly, report.WholeTurn} {
		c.Runs[i] = &report.Result{Locked: locked, Took: time.Duration(i+1) * time.Second}
		c.Runs[i].Judge(append(turn(0, "instance-1", 0), turn(1, "instance-2", i/2*2)...), 2)
	}
	c.Runs[1].Spans = append(turnOf("s1", "instance-1", 20, 21, 30), turnOf("s2", "instance-2", 25, 30, 40, "s1")...)
	c.Runs[2].Spans = append(turnOf("t1", "instance-1", 0, 2, 60), turnOf("t2", "instance-2", 10, 60, 120, "t1")...)
	c.Runs[2].Ended = []balancer.Turn{{Error: "stale", Refused: true}}
	return c
}

func write(t *testing.T, c *report.Comparison) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, c); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWrite_hasWhatTheTerminalHas(t *testing.T) {
	page := write(t, comparison())
	for _, want := range []string{
		`<h1>Without a lock 1 of 2 messages went wrong, with a lock around Save alone 1, and with a lock around the whole turn 0.</h1>`,
		`conversations: 1, messages in each: 2, instances: 2`,
		`<tr><th scope="row">messages of users</th><td>2</td><td>2</td><td>2</td></tr>`,
		`<tr><th scope="row">stale <small>answered from an outdated history</small></th><td class="bad">1</td><td class="bad">1</td><td>0</td></tr>`,
		`<th scope="col">no lock</th><th scope="col">Save only</th><th scope="col">whole turn</th>`,
		`<tr><th scope="row">stale writes refused <small>token was outdated</small></th><td>–</td><td>–</td><td>1</td></tr>`,
		`<tr><th scope="row">wait for the lock, longest</th><td>–</td><td>5.0 ms</td><td>50.0 ms</td></tr>`,
		`<tr><th scope="row">time for all messages</th><td>1.0 s</td><td>2.0 s</td><td>3.0 s</td></tr>`,
		`<strong class="bad">1</strong> <span>of 2 messages went wrong</span>`,
		`<strong class="good">0</strong> <span>of 2 messages went wrong</span>`,
		`Without a lock, instances load`, `1 of 2 answers come from an outdated history`,
		`Locks and histories were on a Redis.`, `<time datetime="1970-01-01T00:00:00Z">`,
		`instance-2, distlock.acquire: from 10.0 ms for 50.0 ms.`,
		`<rect class="bar wait" x="8.33%"`, `width="41.67%"`,
		`go run ./examples/agent -instances 2 -sessions 1 -turns 2 -report FILE`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestWrite_needsNothingElse(t *testing.T) {
	page := write(t, comparison())
	if found := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|@import|https?:|\bsrc=|\bon\w+=|url\([^#]`).FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
}

func TestWrite_escapes(t *testing.T) {
	c := comparison()
	for i := range c.Runs[2].Spans {
		c.Runs[2].Spans[i].Instance = `<script>"&`
	}
	if page := write(t, c); strings.Contains(page, "<script>") {
		t.Error("a name became part of the page")
	}
}

func TestWrite_saysWhenTheLockBrokeItsPromise(t *testing.T) {
	c := comparison()
	c.Runs[0], c.Runs[2] = c.Runs[2], c.Runs[0]
	page := write(t, c)
	for _, want := range []string{"the lock broke its promise: 1 of 2 messages went wrong under it", "In conversation 0, turn 1 is stale", "Without a lock nothing went wrong this time", "No turn had to wait for another one"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, wrong := range []string{"With a lock around the whole turn (", `id="waterfall"`} {
		if strings.Contains(page, wrong) {
			t.Errorf("the page says %q", wrong)
		}
	}
}
