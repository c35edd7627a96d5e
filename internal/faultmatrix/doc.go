// Package faultmatrix causes, on every kind of Redis, the faults that a lock has to survive, and checks what is promised in
// each: that one holder at a time remains where that is promised, that a store which compares fencing tokens accepts no
// stale write in any case, how soon others go on, and what the caller is told.
//
// It has tests only. TestFaults/<topology>/<fault> is one fault on one topology.
// TestFaults_ownServers/<topology>/<fault> is one that breaks its servers for good.
// docs/reliability.md lists the faults.
package faultmatrix
