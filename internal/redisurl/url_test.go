package redisurl_test

import (
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/redisurl"
)

const (
	single   = "redis://:s3cret@localhost:6379"
	sentinel = "redis+sentinel://:s3cret@localhost:26379?master_name=m"
	cluster  = "redis+cluster://:s3cret@localhost:6379"
)

var refused = map[string]struct{ url, text string }{
	"empty":                  {"", "it has no scheme: write one of redis:// "},
	"no scheme":              {"localhost:6379", "it has no scheme: write one of redis:// "},
	"scheme in a parameter":  {"u:s3cret@localhost?url=redis://", "it has no scheme: write one of redis:// "},
	"password in the scheme": {"u:s3cret@h://localhost", "it has no scheme: write one of redis:// "},
	"scheme without slashes": {"redis:localhost", "it has no scheme: write one of redis:// "},
	"unknown scheme":         {"etcd://localhost", `the scheme "etcd" is not known: write one of redis:// `},
	"unknown kind": {"redis+ring://localhost",
		`the scheme "redis+ring" is not known: write one of redis:// `},
	"unknown kind of Valkey": {"valkey+ring://localhost",
		`the scheme "valkey+ring" is not known: write one of redis:// `},
	"scheme of Sentinels by socket": {"unix+sentinel:///s3cret", `the scheme "unix+sentinel" is not known`},
	"no client":                     {"mem://", `the scheme "mem" is not known: write one of redis:// `},
	"bad port": {"redis://:s3cret@localhost:port",
		`the host has the port "port": a port must be a number from 1 to 65535`},
	"password as port": {"redis://u:s3cret",
		"has a port that is no number: a port must be a number from 1 to 65535"},
	"port beyond the last": {"redis://:s3cret@localhost:65536",
		`the host has the port "65536": a port must be a number from 1 to 65535`},
	"port without user": {"redis://localhost:65536", `has the port "65536"`},
	"IPv6 without brackets": {"redis://:s3cret@::1",
		"the host is wrong: write host:port, or [host]:port for an IPv6 address"},
	"several hosts": {"redis://:s3cret@a,b",
		"redis:// takes one host: for several, write redis+sentinel:// or redis+cluster://"},
	"several hosts, TLS": {"rediss://:s3cret@a,b", "write rediss+sentinel:// or rediss+cluster://"},
	"several hosts, Valkey": {"valkeys://:s3cret@a,b",
		"valkeys:// takes one host: for several, write valkeys+sentinel:// or valkeys+cluster://"},
	"socket without path":   {"unix://:s3cret@", "unix:// takes the path of a socket and no host"},
	"socket, root":          {"unix:///", "write unix:///path/to/redis.sock"},
	"socket, two slashes":   {"unix://s3cret/redis.sock", "unix:// takes the path of a socket and no host"},
	"socket, bare @":        {"unix://u:s3/cret@/redis.sock", "percent-encode the special characters"},
	"socket with TLS":       {"unix:///redis.sock?tls_ca=/s3cret", "tls_ca needs TLS and a value"},
	"socket, bad database":  {"unix:///redis.sock?db=x", "the database must be a number from 0"},
	"password as database":  {"redis://u:12/s3cret", "the database must be a number from 0"},
	"negative database":     {single + "?db=-1", "the database must be a number from 0"},
	"two databases":         {single + "/1?db=1", "has a database in the path and in db"},
	"parameter twice":       {single + "?s3cret=1&s3cret=2", "a parameter occurs more than once"},
	"namespace":             {single + "?namespace=s3cret", "namespace is a parameter of lockurl.Open alone"},
	"ttl":                   {single + "?ttl=10s", "ttl is a parameter of lockurl.Open alone"},
	"wait":                  {cluster + "?wait=10s", "wait is a parameter of lockurl.Open alone"},
	"skip_verify, no TLS":   {single + "?skip_verify=true", "skip_verify needs TLS and a value"},
	"tls_server_name alone": {sentinel + "&tls_server_name=s3cret", "tls_server_name needs TLS and a value"},
	"tls_ca, no TLS":        {"valkey+cluster://h?tls_ca=/s3cret", "tls_ca needs TLS and a value"},
	"tls_key, empty":        {"rediss://h?tls_key=&tls_cert=/s3cret", "tls_key needs TLS and a value"},
	"tls_key alone":         {"rediss://h?tls_key=/s3cret", "tls_cert and tls_key are a pair: name both files, or none"},
	"tls_ca is no file":     {"rediss://:s3cret@h?tls_ca=/no/such/file", "tls_ca: open /no/such/file: "},
	"skip_verify, no bool":  {"rediss+cluster://h?skip_verify=s3cret", "skip_verify must be true or false"},
	"skip_verify of a name": {"rediss://h?skip_verify=1&tls_server_name=s3cret", "leave skip_verify out"},
	"skip_verify of a file": {"rediss://h?skip_verify=true&tls_ca=/s3cret", "leave skip_verify out"},
	"unknown option":        {single + "?pool=1", "(the parameters are those of redis.ParseURL of go-redis)"},
	"negative pool":         {single + "?pool_size=-1", "must be 0 to 65535"},
	"pool too large":        {single + "?max_active_conns=3000000000", "must be 0 to 65535"},
	"password as parameter": {single + "?password=s3&cret",
		"password is not a parameter here: write user:password@ before the host"},
	"password with /":       {"redis://:s3/cret@localhost:6379", "percent-encode the special characters"},
	"password with ?":       {"redis://u:12?s3cret@localhost:6379", "percent-encode the special characters"},
	"password with #":       {"redis://u:12#s3cret@localhost:6379", "percent-encode the special characters"},
	"password with %":       {"redis://:s3%cret@localhost:6379", "percent-encode the special characters"},
	"slash and database":    {"redis://u:12/s3cret@localhost/0", "percent-encode the special characters"},
	"a fragment":            {single + "#0", "percent-encode the special characters"},
	"escape in a parameter": {single + "?client_name=s3%cret", "percent-encode the special characters"},
	"semicolon":             {single + "?client_name=s3;cret", "percent-encode the special characters"},
	"Sentinel without name": {"redis+sentinel://:s3cret@localhost",
		"it has no master_name: add ?master_name=NAME"},
	"Sentinel without host": {"redis+sentinel://:s3cret@?master_name=m",
		"it names no host: write host:port, or several with commas"},
	"Sentinel, host empty": {"redis+sentinel://:s3cret@a,,c?master_name=m", "host 2 of 3 is wrong"},
	"Sentinel, port alone": {"redis+sentinel://:s3cret@:26379?master_name=m", "the host is wrong"},
	"Sentinel, space":      {"redis+sentinel://:s3cret@a, b?master_name=m", "host 2 of 2 is wrong"},
	"Sentinel, bad port": {"redis+sentinel://:s3cret@a:1,b:0?master_name=m",
		`host 2 of 2 has the port "0": a port must be a number from 1 to 65535`},
	"Sentinel, unknown": {sentinel + "&pool=1",
		"(the parameters are those of redis.ParseFailoverURL of go-redis"},
	"Sentinel, huge pool": {sentinel + "&min_idle_conns=65536", "must be 0 to 65535"},
	"Sentinel, replicas":  {sentinel + "&replica_only=true", "send commands to replicas"},
	"Sentinel, nearest":   {sentinel + "&route_by_latency=1", "send commands to replicas"},
	"Sentinel, any":       {sentinel + "&route_randomly=true", "send commands to replicas"},
	"Sentinel, bare & in a password": {sentinel + "&sentinel_password=s3&cret",
		"a parameter is not known or has a wrong value, and may be a part of a password: correct it, and write an & in a password as %26"},
	"Sentinel, two passwords": {sentinel + "&password=s3cret", "leave one of them out"},
	"Sentinel, two users": {"redis+sentinel://u:s3cret@h?master_name=m&username=s3cret",
		"leave one of them out"},
	"Sentinel, user per host": {"redis+sentinel://u:s3cret@a,u:s3cret@b?master_name=m",
		"user and password belong before the first host alone"},
	"Sentinel, password with ?": {"redis+sentinel://u:12?s3cret@a,b&master_name=m",
		"percent-encode the special characters"},
	"Cluster without host": {"redis+cluster://", "it names no host"},
	"Cluster with a database": {cluster + "/1",
		"a Cluster has no databases to choose from: leave the database out"},
	"Cluster with database 0":   {cluster + "/0", "a Cluster has no databases to choose from"},
	"Cluster with parameter db": {cluster + "?db=1", "a Cluster has no databases to choose from"},
	"Cluster, unknown":          {cluster + "?master_name=m", "(the parameters are those of redis.ParseClusterURL"},
	"Cluster, huge pool":        {cluster + "?max_idle_conns=65536", "must be 0 to 65535"},
	"Cluster, replicas":         {cluster + "?read_only=true", "send commands to replicas"},
	"Cluster, nearest":          {cluster + "?route_by_latency=true", "send commands to replicas"},
	"Cluster, any":              {cluster + "?route_randomly=1", "send commands to replicas"},
	"Cluster, a secret": {cluster + "?sentinel_password=s3&cret",
		"sentinel_password is not a parameter here"},
}

func TestNewClient_refusalShowsNoPassword(t *testing.T) {
	for name, bad := range refused {
		client, err := redisurl.NewClient(bad.url)
		if err == nil {
			t.Errorf("%s: accepted", name)
			_ = client.Close()
			continue
		}
		if !strings.Contains(err.Error(), bad.text) {
			t.Errorf("%s: the error is %v, want the text %q", name, err, bad.text)
		}
		for _, secret := range []string{"s3", "cret", "12?", "12/", "12#"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the text shows a part of the password: %v", name, err)
			}
		}
	}
}
