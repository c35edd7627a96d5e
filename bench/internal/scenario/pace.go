package scenario

import "time"

// Pace says how often and how long each scenario measures.
type Pace struct {
	Serial, Tracing, Parallel, Local, Cross, Handoff, Idle, Store, History Rounds

	RedlockSerial, RedlockCross, RedlockVotes Rounds // on a quorum

	PgSerial, PgCross, PgWaiters, PgSave, PgNotify, PgRenew Rounds // on PostgreSQL
}

// Rounds are the rounds of one scenario. What the times mean is said there.
type Rounds struct {
	N      int
	Window time.Duration // how long this library is measured in a round
	Peers  time.Duration // how long each of the others is, where that differs
	Settle time.Duration // how long before that, in which nothing counts
}

// Quick is the pace for a look: about 4 minutes for all.
var Quick = Pace{
	Serial:   Rounds{N: 8, Window: 800 * time.Millisecond},
	Tracing:  Rounds{N: 12, Window: 600 * time.Millisecond},
	Parallel: Rounds{N: 6, Window: 200 * time.Millisecond, Settle: 50 * time.Millisecond},
	Local:    Rounds{N: 4, Window: 300 * time.Millisecond, Settle: 100 * time.Millisecond},
	Cross:    Rounds{N: 3, Window: time.Second, Settle: 250 * time.Millisecond},
	Handoff:  Rounds{N: 3, Window: 1200 * time.Millisecond, Peers: 600 * time.Millisecond},
	Idle:     Rounds{N: 1, Window: 10 * time.Second, Peers: 800 * time.Millisecond, Settle: 2 * time.Second},
	Store:    Rounds{N: 5, Window: 500 * time.Millisecond},
	History:  Rounds{N: 3, Window: 500 * time.Millisecond},

	RedlockSerial: Rounds{N: 6, Window: 1200 * time.Millisecond},
	RedlockCross:  Rounds{N: 3, Window: time.Second, Settle: 300 * time.Millisecond},
	RedlockVotes:  Rounds{N: 300},

	PgSerial:  Rounds{N: 6, Window: time.Second},
	PgCross:   Rounds{N: 3, Window: time.Second, Settle: 300 * time.Millisecond},
	PgWaiters: Rounds{N: 1, Window: 2 * time.Second},
	PgSave:    Rounds{N: 6, Window: 800 * time.Millisecond},
	PgNotify:  Rounds{N: 4, Window: time.Second, Settle: 300 * time.Millisecond},
	PgRenew:   Rounds{N: 3, Window: 500 * time.Millisecond},
}

// Full is the pace for figures that are kept: about 13 minutes.
var Full = Pace{
	Serial:   Rounds{N: 15, Window: 2 * time.Second},
	Tracing:  Rounds{N: 21, Window: 1500 * time.Millisecond},
	Parallel: Rounds{N: 12, Window: 400 * time.Millisecond, Settle: 50 * time.Millisecond},
	Local:    Rounds{N: 9, Window: 600 * time.Millisecond, Settle: 100 * time.Millisecond},
	Cross:    Rounds{N: 7, Window: 2 * time.Second, Settle: 300 * time.Millisecond},
	Handoff:  Rounds{N: 7, Window: 2 * time.Second, Peers: time.Second},
	Idle:     Rounds{N: 3, Window: 10 * time.Second, Peers: 2 * time.Second, Settle: 2 * time.Second},
	Store:    Rounds{N: 11, Window: 1500 * time.Millisecond},
	History:  Rounds{N: 7, Window: time.Second},

	RedlockSerial: Rounds{N: 11, Window: 2500 * time.Millisecond},
	RedlockCross:  Rounds{N: 7, Window: 2 * time.Second, Settle: 300 * time.Millisecond},
	RedlockVotes:  Rounds{N: 300},

	PgSerial:  Rounds{N: 11, Window: 2 * time.Second},
	PgCross:   Rounds{N: 7, Window: 2 * time.Second, Settle: 300 * time.Millisecond},
	PgWaiters: Rounds{N: 1, Window: 10 * time.Second},
	PgSave:    Rounds{N: 11, Window: 2 * time.Second},
	PgNotify:  Rounds{N: 7, Window: 2 * time.Second, Settle: 300 * time.Millisecond},
	PgRenew:   Rounds{N: 7, Window: time.Second},
}
