// Package matrix causes each fault on each topology of Redis, and on PostgreSQL. It checks the
// promises: at most one live lease where that is promised, no stale write in a store that checks
// tokens, the time until the next holder, and the errors that callers get.
//
// It has tests only. TestFaults/<topology>/<fault> is one fault on one topology.
// TestFaults_ownServers/<topology>/<fault> is one that breaks its servers for good.
// docs/reports/faults-2026-11.md lists the faults.
package matrix
