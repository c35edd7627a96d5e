// Package campaign lets worker processes use locks and session stores on all topologies while
// faults strike at random, and judges everything that the workers do. The rules and their windows
// stand in docs/design/campaign.md.
//
//	make faults MINUTES=30
//	make faults MINUTES=5 ON=cluster SEED=42    # repeats the choices of a run
//	make faults MINUTES=5 FLAGS="-faults chaos" # strikes at exact moments of turns, and killed masters
//	make faults MINUTES=5 FLAGS="-faults none"  # many processes compete for few locks
//	make faults MINUTES=5 WORK=stop             # turns are stopped and interrupted; or inbox, beluga, adk
//	make faults MINUTES=30 WORK=soak            # a steady load: does anything grow?
//
// Begin to read in run_test.go and campaign_test.go. The parent starts servers, workers and faults
// (strikes_test.go). It keeps the register of critical sections and the ledger of turns, and judges
// them. Workers (worker_test.go) report over a Unix socket. beluga and adk run apart, see
// instances_test.go. broken_test.go has defective workers, each of which a run must find.
package campaign
