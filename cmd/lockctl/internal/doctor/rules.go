package doctor

import (
	"cmp"
	"os"
	"strconv"
	"time"
)

// server is one server, and its answers.
type server struct {
	target
	name     string            // host:port
	topology string            // of a Redis
	facts    map[string]string // settings and state that the user may read, by the server's names
}

// A rule judges one fact of a server. Rules of one check follow each other: the first one whose
// condition holds is the finding. In a text, ${name} stands for a fact.
type rule struct {
	check string
	level Level
	when  func(*server) bool

	found, means, do string
}

// judge adds the findings of the wanted checks.
func (r *report) judge(s *server, rules []rule, wanted func(check string) bool) {
	done := ""
	for _, rule := range rules {
		if rule.check == done || !wanted(rule.check) || !rule.when(s) {
			continue
		}
		done = rule.check
		r.add(rule.check, s.name, result(rule.level, s.expand(rule.found), s.expand(rule.means), s.expand(rule.do)))
	}
}

// expand writes the facts into a text.
func (s *server) expand(text string) string {
	return os.Expand(text, func(name string) string { return cmp.Or(s.facts[name], "unknown") })
}

// number returns a fact as a number, or 0.
func (s *server) number(name string) int64 { return number(s.facts, name) }

func number(of map[string]string, name string) int64 {
	n, _ := strconv.ParseInt(of[name], 10, 64)
	return n
}

// always, known, is and zero are conditions.
func always(*server) bool { return true }

func known(name string) func(*server) bool {
	return func(s *server) bool { return s.facts[name] != "" }
}

func is(name, value string) func(*server) bool {
	return func(s *server) bool { return s.facts[name] == value }
}

func zero(name string) func(*server) bool {
	return func(s *server) bool { return s.number(name) == 0 }
}

// both holds if two conditions do.
func both(a, b func(*server) bool) func(*server) bool {
	return func(s *server) bool { return a(s) && b(s) }
}

// slow is how far clocks may differ.
const slow = time.Second

// clock compares the clock of a server with the local one.
func clock(offset, took time.Duration) Finding {
	if offset.Abs() > slow+took {
		return result(Warning, offset.Round(time.Millisecond).String()+" from the clock here",
			"Tokens follow the clock of the server. A step of that clock ends locks early or late.",
			"Run NTP on both machines, and let it slew the clocks.")
	}
	return ok("%v from the clock here", offset.Round(time.Millisecond))
}

const servesNothing = "The server serves no lock and no session."

func secured(tls bool) string {
	if tls {
		return "with TLS"
	}
	return "without TLS"
}

// advice is what to do about an error with a text.
type advice struct{ text, do string }
