package lockurl_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// refused are URLs that are not accepted, and what the error says. internal/postgres, redislock and redlock
// test further URLs of their own.
var refused = map[string]string{
	"":                                               "it has no scheme: write one of mem:// redis:// ",
	"localhost:6379":                                 "it has no scheme: write one of mem:// redis:// ",
	"u:s3cret@localhost?url=redis://":                "it has no scheme",
	"u:s3cret@h://localhost":                         "it has no scheme: write one of mem:// redis:// ",
	"etcd://localhost":                               `the scheme "etcd" is not known: write one of mem:// redis:// `,
	"redis+ring://localhost":                         `the scheme "redis+ring" is not known`,
	"valkey+ring://localhost":                        `the scheme "valkey+ring" is not known`,
	"mem://localhost":                                "mem:// takes nothing after it",
	"mem://?pool_size=5":                             "mem:// takes nothing after it but namespace, ttl and wait",
	"mem://?ttl=30":                                  "ttl is not a duration with a unit: write 500ms, 30s or 1m30s",
	"redis://:s3cret@localhost?wait=s3cret":          "wait is not a duration with a unit",
	"mem://?ttl=0s":                                  "ttl is empty or 0, which would mean the default",
	"redis://localhost?namespace=":                   "namespace is empty or 0",
	"mem://?namespace=a&namespace=a":                 "namespace is set twice",
	"redis://:s3cret@localhost?ttl=1s&tll=1s":        "unexpected option: tll",
	"redis://u:12?ttl=s3&x=cret@localhost":           "percent-encode the special characters",
	"redis://u:12?ttl=1s&x=s3cret@localhost":         "percent-encode the special characters",
	"redis://localhost?ttl=1s#s3cret":                "percent-encode the special characters",
	"redis://localhost?ttl=1s;s3cret":                "percent-encode the special characters",
	"postgres://:s3cret@localhost:port":              "it cannot be parsed: invalid port",
	"postgres://u:12?ttl=s3&x=cret@localhost":        "percent-encode the special characters",
	"postgresql://u:s3@cret@localhost?ttl=1s":        "percent-encode the special characters",
	"postgres://localhost?ttl=1s&password=s3&cret":   "password is not a parameter here",
	"postgres://:s3cret@localhost?schema=A":          "schema: a schema has 1 to 63",
	"redis://:s3cret@localhost:port":                 `the host has the port "port": a port must be a number from 1 to 65535`,
	"redis+sentinel://:s3cret@localhost":             "it has no master_name: add ?master_name=NAME",
	"redis+cluster://:s3cret@localhost:6379/1":       "a Cluster has no databases to choose from: leave the database out",
	"redlock+redis://h,i":                            "redlock needs 3 nodes or more",
	"redlock+redis://:s3cret@h,i,j,k":                "use an odd number of nodes",
	"redlock+redis://u:s3,cret@h,i":                  "write a comma in a password as %2C",
	"redlock+redis://h,i,:s3cret@j:port":             "node 2 of 3 has no user and password",
	"redlock+redis://:s3cret@h,i,j:port":             "node 3 of 3: the host has a port that is no number",
	"redlock+redis://h,i,j?ttl=1m&restart_delay=30s": "restart_delay is shorter than the ttl of 1m0s",
	"redlock+redis://h,i,j?restart_delay=3s":         "restart_delay is shorter than the ttl of 30s",
	"redlock+redis+sentinel://h":                     `the scheme "redlock+redis+sentinel" is not known`,
	"redlock+redis://u:12?ttl=s3&x=cret@h,i,j":       "percent-encode the special characters",
}

func TestOpen_refusesBadURLs(t *testing.T) {
	for url, text := range refused {
		_, err := lockurl.Open(t.Context(), url, nil)
		checkRefusal(t, url, err, text)
	}
	for rawURL, opts := range map[string]*distlock.Options{
		"redis://localhost":                   {TTL: time.Millisecond},
		"redis://localhost?ttl=1ms":           nil,
		"mem://?namespace=%7Ba%7D":            {},
		"redis://localhost?wait=1s&ttl=-100s": nil,
	} {
		if _, err := lockurl.Open(t.Context(), rawURL, opts); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("bad options, %s: %v", rawURL, err)
		}
	}
}

func TestOpen_parameters(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	callers := &distlock.Options{Holder: "h"}
	for rawURL, want := range map[string]distlock.Options{
		"mem://?namespace=a%26b&ttl=10s&wait=1m30s": {Namespace: "a&b", TTL: 10 * s, Wait: 90 * s},
		"mem://?wait=-1s": {Namespace: "distlock", TTL: 30 * s, Wait: -s},
		"redis://:p%40s%26s@h:1/2?pool_size=5&ttl=1s":         {Namespace: "distlock", TTL: s, Wait: 6 * s},
		"valkey+cluster://h,i?namespace=n&dialer_retries=1":   {Namespace: "n", TTL: 30 * s, Wait: 35 * s},
		"redis+sentinel://h?ttl=2s&master_name=m&wait=250ms":  {Namespace: "distlock", TTL: 2 * s, Wait: 250 * ms},
		"postgres://u:p%40s@h:1,i/db?schema=s&ttl=2s&wait=1s": {Namespace: "distlock", TTL: 2 * s, Wait: s},
		"redlock+redis://:p@h,i,j/2?ttl=2s&restart_delay=-1s": {Namespace: "distlock", TTL: 2 * s, Wait: 7 * s},
		"unix:///a%3Fb?namespace=n&db=3":                      {Namespace: "n", TTL: 30 * s, Wait: 35 * s},
	} {
		l := must(lockurl.Open(t.Context(), rawURL, callers))
		got := fencing.Options(l)
		if got.Namespace != want.Namespace || got.TTL != want.TTL || got.Wait != want.Wait || got.Holder != "h" {
			t.Errorf("%s: %+v, want %+v", rawURL, got, want)
		}
		must(0, l.Close(t.Context()))
	}
	if *callers != (distlock.Options{Holder: "h"}) {
		t.Errorf("the caller's options are now %+v", *callers)
	}
}

// The URLs of the page open, with the file of an authority of the test.
func TestOpen_urlsOfThePage(t *testing.T) {
	page := docs.Place{Page: "docs/howto/sentinel-and-cluster.md", Heading: "# Use Sentinel or Cluster"}
	for url := range strings.FieldsSeq(page.Blocks(t, "text")[0]) {
		open(t, strings.Replace(url, "/etc/redis/ca.pem", newAuthority(t).file, 1))
	}
}

// The URL overrides no option of the caller's, and they do not override the URL.
func TestOpen_refusesOptionsSetTwice(t *testing.T) {
	for query, opts := range map[string]distlock.Options{
		"namespace=a": {Namespace: "a"}, "ttl=10s": {TTL: time.Second}, "wait=1s": {Wait: -1},
	} {
		for _, rawURL := range []string{"mem://?", "redis://:s3cret@localhost?", "postgres://:s3cret@localhost?"} {
			_, err := lockurl.Open(t.Context(), rawURL+query, &opts)
			name, _, _ := strings.Cut(query, "=")
			checkRefusal(t, query, err, name+" is set twice, in the URL or by distlock.Options")
		}
	}
}

// A readiness probe has a second. Within it the first call names the cause.
func TestOpen_C_noServer_causeWithinASecond(t *testing.T) {
	for rawURL, cause := range map[string]string{
		"redis://:s3cret@127.0.0.1:1":        "connection refused",
		"unix://:s3cret@/no/such/redis.sock": "no such file",
		"redis+sentinel://:s3cret@127.0.0.1:1,127.0.0.1:2?master_name=m&sentinel_password=cret": "connection refused",
		"redis+cluster://:s3cret@127.0.0.1:1,127.0.0.1:2":                                       "connection refused",
		"redlock+redis://:s3cret@127.0.0.1:1,:s3cret@127.0.0.1:2,:s3cret@127.0.0.1:3":           "connection refused",
		"postgres://u:s3cret@127.0.0.1:1,127.0.0.1:2/db":                                        "connection refused",
	} {
		t.Run(rawURL, func(t *testing.T) {
			t.Parallel()
			l := open(t, rawURL)
			for name, call := range map[string]func() error{
				"Ping":       func() error { return l.Ping(t.Context()) },
				"TryAcquire": func() error { _, err := l.TryAcquire(t.Context(), "key"); return err },
			} {
				stop, start := leakcheck.Stalls(), time.Now()
				err := call()
				took := time.Since(start) - stop()
				if !errors.Is(err, distlock.ErrUnavailable) || !strings.Contains(err.Error(), cause) ||
					strings.Contains(err.Error(), "cret") || took >= time.Second {
					t.Errorf("%s, after %s: %v", name, took, err)
				}
			}
		})
	}
}

// A server that is not the one of the URL is named, with what to change.
func TestOpen_wrongServer_isNamed(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	http, node := strings.TrimPrefix(web.URL, "http://"), servers.StartRedis(t)
	watched := servers.StartSentinelFor(t, node.Addr()).Addr()
	for rawURL, want := range map[string]struct {
		kind error
		text string
	}{
		"redis://" + node.Addr() + "/99":                             {distlock.ErrRefused, "the server has fewer databases"},
		"redis://" + http:                                            {distlock.ErrUnavailable, "this is no Redis, but perhaps HTTP"},
		"redis+sentinel://" + http + "?master_name=m":                {distlock.ErrUnavailable, "this is no Redis, but perhaps HTTP"},
		"redis+cluster://" + http:                                    {distlock.ErrUnavailable, "this is no Redis, but perhaps HTTP"},
		"redis+sentinel://" + watched + "?master_name=other":         {distlock.ErrRefused, "its name is not known (correct MasterName"},
		"redis://" + watched:                                         {distlock.ErrRefused, "this is a Sentinel"},
		"redis+cluster://" + watched:                                 {distlock.ErrRefused, "this is a Sentinel"},
		"redis+sentinel://" + node.Addr() + "?master_name=m":         {distlock.ErrRefused, "this is a server, and no Sentinel"},
		"redis+cluster://" + node.Addr():                             {distlock.ErrRefused, "this server is in no Cluster"},
		"redlock+redis://" + watched + "," + http + ",127.0.0.1:1/1": {distlock.ErrUnavailable, "this is a Sentinel"},
	} {
		if err := open(t, rawURL).Ping(t.Context()); !errors.Is(err, want.kind) || !strings.Contains(err.Error(), want.text) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", rawURL, err, want.text)
		}
	}
}
