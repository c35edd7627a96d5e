package main

import "github.com/alicebob/miniredis/v2"

// embedded are servers of Redis in this program.
type embedded []*miniredis.Miniredis

// start starts one, and returns its URL.
func (e *embedded) start() (url string, err error) {
	server, err := miniredis.Run()
	if err != nil {
		return "", err
	}
	server.ClockTTL(true) // or no lock would ever expire
	*e = append(*e, server)
	return "redis://" + server.Addr(), nil
}

func (e embedded) close() {
	for _, server := range e {
		server.Close()
	}
}

// serve gives cfg the URLs that no flag has set: -store is the server of -lock, and without -lock the
// locks are on an embedded one.
func (e *embedded) serve(cfg *config) (err error) {
	if cfg.Lock == "" {
		cfg.Lock, err = e.start()
	}
	if cfg.Store == "" {
		cfg.Store = cfg.Lock
	}
	return err
}

// about says for the report where locks and histories are, by the flags alone.
func (cfg config) about() (locks, histories, flags string) {
	locks, histories = "on a Redis, embedded in the program", "on the same server"
	if cfg.Lock != "" {
		locks, flags = "on the server at -lock", " -lock URL"
	}
	if cfg.Store != "" && cfg.Store != cfg.Lock {
		histories, flags = "on the server at -store", flags+" -store URL"
	}
	return locks, histories, flags
}
