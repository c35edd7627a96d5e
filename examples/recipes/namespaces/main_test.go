package main

import (
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

// The name of one service begins with that of the other.
func TestNamespaces_otherServiceNotBusy(t *testing.T) {
	recipetest.EachBackend(t, func(t *testing.T, url string) {
		start := func(service, work string) *recipetest.Process {
			return recipetest.Start(t, "-lock", url, "-service", service, "-work", work)
		}
		start("prod", "1m").Await("prod: the job begins")

		other := start("prod2", "1ms")
		other.Await("prod2: the job is done")
		if err := other.Wait(); err != nil {
			t.Error(err)
		}
		same := start("prod", "1ms")
		same.Await("prod: busy: ")
		if err := same.Wait(); err != nil {
			t.Error(err)
		}
		if output := same.Output(); strings.Contains(output, "begins") {
			t.Errorf("two instances of a service run the job:\n%s", output)
		}
	})
}

func TestNamespaces_userOfOtherService_refused(t *testing.T) {
	server := servers.StartRedis(t)
	servers.SetUser(t, server, "billing", []string{"billing"}, servers.DocumentedRights(t, "../../../distlock/redislock/doc.go").Needed...)
	url := "redis://billing:" + servers.UserPassword + "@" + server.Addr()

	own := recipetest.Start(t, "-lock", url, "-service", "billing", "-work", "1ms")
	own.Await("billing: the job is done")
	if err := own.Wait(); err != nil {
		t.Error(err)
	}
	foreign := recipetest.Start(t, "-lock", url, "-service", "reports", "-work", "1ms")
	if err := foreign.Wait(); err == nil {
		t.Error("the user of one service takes a lock of another service")
	}
	if output := foreign.Output(); !strings.Contains(output, "refused") {
		t.Errorf("output without the refusal:\n%s", output)
	}
}
