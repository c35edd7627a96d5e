package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// service is a quorum of servers for the conformance suite.
func service(servers []*server) drivertest.Service {
	all := func(do func(*server)) {
		for _, s := range servers {
			do(s)
		}
	}
	return drivertest.Service{
		New:            func(tb testing.TB) driver.Driver { return newDriver(tb, servers) },
		Restart:        func() { all((*server).restart) },
		CutConnections: func() { slow(servers); all((*server).cutConnections) },
		Hang: func() func() {
			var resumes []func()
			all(func(s *server) { resumes = append(resumes, s.hang()) })
			return func() {
				for _, resume := range resumes {
					resume()
				}
			}
		},
		DenyRight: func() func() {
			all(func(s *server) { s.fails(driver.ErrRights) })
			return func() { all(func(s *server) { s.fails(nil) }) }
		},
		PutForeign: func(name driver.Name) func() bool {
			all(func(s *server) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.foreign[name] = true
			})
			return func() bool { return true }
		},
	}
}

// slow delays the next calls of the servers, so that a cut finds calls under way.
func slow(servers []*server) {
	for _, s := range servers {
		resume := s.hang()
		time.AfterFunc(2*time.Millisecond, resume)
	}
	time.Sleep(time.Millisecond)
}

func TestConformance(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%dNodes", n), func(t *testing.T) { drivertest.Run(t, service(newServers(n))) })
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	for _, n := range []int{3, 5} {
		b.Run(fmt.Sprintf("%dNodes", n), func(b *testing.B) {
			drivertest.Benchmark(b, func(tb testing.TB) driver.Driver { return newDriver(tb, newServers(n)) })
		})
	}
}
