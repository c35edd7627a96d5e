package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/page"
	"github.com/belugalock/belugalock/examples/agent/internal/scratch"
)

func parse(args []string) (cfg config, err error) {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cfg.Lock, "lock", "", "")
	flags.StringVar(&cfg.Store, "store", "", "")
	flags.IntVar(&cfg.Instances, "instances", 4, "")
	flags.IntVar(&cfg.Sessions, "sessions", 3, "")
	flags.IntVar(&cfg.Turns, "turns", 120, "")
	flags.BoolVar(&cfg.Chaos, "chaos", false, "")
	flags.StringVar(&cfg.Metrics, "metrics", "", "")
	otlp := flags.String("otlp", "", "")
	flags.Func("report", "", func(path string) error {
		cfg.Report = path
		return page.Check(path)
	})
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	endpoint, err := url.Parse(*otlp)
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("%q is not a flag", flags.Arg(0))
	case cfg.Instances < 1 || cfg.Instances > 64 || cfg.Sessions < 1 || cfg.Turns < 1:
		return cfg, errors.New("-instances must be 1 to 64, -sessions and -turns at least 1")
	case cfg.Chaos && cfg.Instances < 2:
		return cfg, errors.New("-chaos needs two -instances at least: others go on where one was killed or paused")
	case cfg.Chaos && !balancer.CanPause:
		return cfg, fmt.Errorf("-chaos cannot work here: it pauses processes by SIGSTOP, which %s does not have", runtime.GOOS)
	case *otlp != "" && (err != nil || endpoint.Host == "" || !strings.HasPrefix(endpoint.Scheme, "http")):
		return cfg, fmt.Errorf("-otlp is %q, but must be a URL such as http://localhost:4318", *otlp)
	case cfg.Metrics != "" && !isAddress(cfg.Metrics):
		return cfg, fmt.Errorf("-metrics is %q, but must be an address such as :9464 or 127.0.0.1:9464", cfg.Metrics)
	case strings.HasPrefix(cfg.Lock, "mem:") || strings.HasPrefix(cfg.Store, "mem:"):
		return cfg, errors.New("mem:// cannot work: its locks and sessions live in one process, and this program starts several")
	}
	// This checks the URLs, and connects to no server.
	lock := cmp.Or(cfg.Lock, "redis://")
	if lock == ownQuorum {
		lock = "redis://"
	}
	servers, err := scratch.New(lock, cmp.Or(cfg.Store, "redis://"), "")
	if err != nil {
		return cfg, err
	}
	servers.Close()
	if *otlp != "" { // for the instances, which inherit it
		err = os.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint.JoinPath("v1/traces").String())
	}
	return cfg, err
}

// isAddress reports whether a server can listen there, but for the name of the host.
func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil
}
