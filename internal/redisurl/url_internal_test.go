package redisurl

import (
	"crypto/tls"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestParse_options(t *testing.T) {
	for rawURL, want := range map[string]any{
		"redis://": &redis.Options{Network: "tcp", Addr: "localhost:6379", DialerRetries: 1, ContextTimeoutEnabled: true},
		"redis://:7000/?db=3": &redis.Options{
			Network: "tcp", Addr: "localhost:7000", DB: 3, DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"redis://u:p%40ss%2C%26@[::1]/2?pool_size=5": &redis.Options{
			Network: "tcp", Addr: "[::1]:6379", Username: "u", Password: "p@ss,&", DB: 2, PoolSize: 5,
			DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"redis://:p@ss@h": &redis.Options{Network: "tcp", Addr: "h:6379", Password: "p@ss", DialerRetries: 1, ContextTimeoutEnabled: true},
		"rediss://h:1?skip_verify=true": &redis.Options{
			Network: "tcp", Addr: "h:1", DialerRetries: 1, ContextTimeoutEnabled: true,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
		},
		"valkey://u:p@h/2": &redis.Options{
			Network: "tcp", Addr: "h:6379", Username: "u", Password: "p", DB: 2, DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"valkeys://?tls_server_name=n": &redis.Options{
			Network: "tcp", Addr: "localhost:6379", DialerRetries: 1, ContextTimeoutEnabled: true,
			TLSConfig: &tls.Config{ServerName: "n", MinVersion: tls.VersionTLS12},
		},
		"unix:///run/a%20%40%3Fb.sock?read_timeout=1s": &redis.Options{
			Network: "unix", Addr: "/run/a @?b.sock", ReadTimeout: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"unix://u:p%40ss@/run/redis.sock?db=5": &redis.Options{
			Network: "unix", Addr: "/run/redis.sock", Username: "u", Password: "p@ss", DB: 5, DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"redis+sentinel://h?master_name=m": &redis.FailoverOptions{
			SentinelAddrs: []string{"h:26379"}, MasterName: "m", DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"redis+sentinel://u:p%40ss@h1,h2:7,[::1],[fe80::1%25eth0]:8/4" +
			"?master_name=m&read_timeout=2s&addr=h3:9": &redis.FailoverOptions{
			SentinelAddrs: []string{"h1:26379", "h3:9", "h2:7", "[::1]:26379", "[fe80::1%eth0]:8"}, MasterName: "m",
			Username: "u", Password: "p@ss", DB: 4, ReadTimeout: 2 * time.Second, DialerRetries: 1,
			ContextTimeoutEnabled: true,
		},
		"redis+sentinel://:p@h?master_name=m&sentinel_username=su&sentinel_password=s%26p": &redis.FailoverOptions{
			SentinelAddrs: []string{"h:26379"}, MasterName: "m", Password: "p",
			SentinelUsername: "su", SentinelPassword: "s&p", DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"redis+sentinel://h?master_name=m&username=u&password=p" +
			"&context_timeout_enabled=false&dialer_retries=3": &redis.FailoverOptions{
			SentinelAddrs: []string{"h:26379"}, MasterName: "m", Username: "u", Password: "p", DialerRetries: 3,
			ContextTimeoutEnabled: true,
		},
		"rediss+sentinel://h1,h2?master_name=m&replica_only=false": &redis.FailoverOptions{
			SentinelAddrs: []string{"h1:26379", "h2:26379"}, MasterName: "m", DialerRetries: 1, ContextTimeoutEnabled: true,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		},
		"valkeys+sentinel://h?master_name=m&tls_server_name=n": &redis.FailoverOptions{
			SentinelAddrs: []string{"h:26379"}, MasterName: "m", DialerRetries: 1, ContextTimeoutEnabled: true,
			TLSConfig: &tls.Config{ServerName: "n", MinVersion: tls.VersionTLS12},
		},
		"redis+cluster://h": &redis.ClusterOptions{
			Addrs: []string{"h:6379"}, ClusterStateReloadInterval: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"redis+cluster://u:p@h1:1,h2,h3:65535/?max_redirects=5&pool_size=65535": &redis.ClusterOptions{
			Addrs: []string{"h1:1", "h2:6379", "h3:65535"}, Username: "u", Password: "p", MaxRedirects: 5, PoolSize: 65535,
			ClusterStateReloadInterval: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"rediss+cluster://h1,h2": &redis.ClusterOptions{
			Addrs: []string{"h1:6379", "h2:6379"}, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			ClusterStateReloadInterval: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
		},
		"valkey+cluster://h?pool_size=0&read_only=false": &redis.ClusterOptions{
			Addrs: []string{"h:6379"}, ClusterStateReloadInterval: time.Second, DialerRetries: 1, ContextTimeoutEnabled: true,
		},
	} {
		got, err := Parse(rawURL)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, %v, want\n%+v", rawURL, got, err, want)
		}
	}
}
