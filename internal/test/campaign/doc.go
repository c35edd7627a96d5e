// Package campaign lets worker processes use locks and session stores, on one Redis, Sentinel,
// Cluster, quorums and PostgreSQL, while faults strike at random. It judges everything that the
// workers do.
//
//	make faults MINUTES=30
//	make faults MINUTES=5 ON=cluster SEED=42
//	make faults MINUTES=5 FLAGS="-faults chaos" # strikes at exact moments of turns, and killed masters
//	make faults MINUTES=5 FLAGS="-faults none"  # many processes compete for few locks
//	make faults MINUTES=5 WORK=stop             # turns are stopped and interrupted
//	make faults MINUTES=5 WORK=inbox            # questions are put, answered together and swept
//	make faults MINUTES=5 WORK=beluga           # runs of Beluga's Runner: ON=node,cluster,postgres
//	make faults MINUTES=5 WORK=adk              # runs of ADK's Runner: ON=node,cluster,postgres
//	make faults MINUTES=30 WORK=soak            # a steady load: does anything grow?
//
// The ordinary run of TestCampaign takes about a minute. All choices of a run are drawn from one
// seed, which is printed: the faults, their order, their victims and how long they last. SEED
// repeats the choices. The effects on the machine differ from run to run.
//
// Begin to read in run_test.go and campaign_test.go. The parent, which is the test's process,
// starts the servers, the workers and the faults (strikes_test.go and the files named faults). The
// parent keeps the register of critical sections (register_test.go) and the ledger of turns
// (ledger_test.go), and judges both, and the calls of stops_test.go and inbox_test.go. Workers
// (worker_test.go, leases_test.go, turns_test.go, drafts_test.go, stops_test.go, inbox_test.go) report
// over a Unix socket. The workloads beluga and adk run apart: beluga_test.go and
// adk_test.go have their clients and judges, and instances_test.go the processes and their faults.
// broken_test.go has defective workers, each of which a run must find.
//
// The rules, their windows and their limits stand in docs/design/campaign.md.
package campaign
