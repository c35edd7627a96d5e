// Package settings has the advice about the settings of servers. The stores give it with Ping, and lockctl
// doctor shows it.
package settings

import "fmt"

// Setting is one that endangers locks and sessions unless it has the value Want.
type Setting struct {
	Name   string // as the server names it
	Want   string
	Harm   string // what another value does, as a clause
	Severe bool   // locks or sessions may be lost
}

// Redis are the settings of a Redis.
var Redis = []Setting{
	{"lazyfree-lazy-expire", "yes", "Redis blocks while it frees a long session that has expired", false},
	{"maxmemory-policy", "noeviction", "a full Redis may evict sessions, IDs and held locks", true},
}

// Postgres are the settings of a PostgreSQL.
var Postgres = []Setting{
	{"autovacuum", "on", "erased text stays in the files, and each Save makes its session slower", false},
	{"fsync", "on", "a power failure may lose acknowledged Saves and tokens, and may destroy the database", true},
	{"full_page_writes", "on", "a power failure may destroy pages of the database", true},
}

// Advice is what to do about a setting with another value. server is its kind.
func (s Setting) Advice(server, value string) string {
	return fmt.Sprintf("set %s of %s to %q, it is %q: otherwise %s", s.Name, server, s.Want, value, s.Harm)
}
