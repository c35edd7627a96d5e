package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Service is an instance of a service, with a lock service beside it.
type Service struct {
	// Driver makes a driver that sees the same sessions as all others with this retention, as a driver
	// in another process would.
	Driver func(tb testing.TB, keep storedriver.Retention) storedriver.Driver
	// Locker makes a Locker that sees the same locks as all others with this namespace.
	Locker func(tb testing.TB, opts *distlock.Options) *distlock.Locker
}

// Run checks a driver; open starts an instance of its service, or returns one that may be shared.
func Run(t *testing.T, open func(tb testing.TB) Service) {
	for _, test := range []struct {
		name string
		run  func(*harness)
	}{
		{"O_saves_inLeaseOrder", savesStandInOrder},
		{"O_concurrentSaves_pairsWhole", pairsStayWhole},
		{"O_saveOutsideTurn_waits", saveOutsideWaits},
		{"O_lateSaveUnderLease_taken", lateSaveOfTheSameLease},
		{"O_clear_lateWritersRefused", clearIsNotUndone},
		{"O_clearInTurn", clearWithinATurn},
		{"O_delete", deleted},
		{"O_delete_waitingTurns_refused", waitedForDelete},
		{"O_delete_waitedLonger_refused", waitedForDeleteAndLonger},
		{"O_delete_waitingInProcess_refused", waitedInProcesses},
		{"O_delete_bySameTurn_notRefused", deletesTwice},
		{"O_delete_olderWaiter_stale", olderWaiter},
		{"C_delete_lostAnswer_repeated", deleteRepeated},
		{"O_delete_aroundFork_refused", deletedAroundFork},
		{"O_delete_overtakesSave_stored", deleteOvertakesSave},
		{"S2_delete_overtaken_refused", deleteOvertaken},
		{"S2_absentSession_oldTokenRefused", oldToken},
		{"O_append_anyNumberOfMessages", appended},
		{"answered", answered},
		{"O_answer_storedOnce", answeredOnce},
		{"O_answer_afterUnknownOutcome", answeredAfterUnknownOutcome},
		{"O_answer_callsInside", answersInside},
		{"answer_gone", answersGone},
		{"answer_busy_sameID", answersBusy},
		{"C_answer_badQuestion_notAsked", answersBadQuestion},
		{"O_replace", replaced},
		{"O_replace_turnsAndIDsKept", replacedKeepsIDs},
		{"O_replace_readersSeeItWhole", replacedWhileRead},
		{"O_replace_refused_nothingWritten", replaceRefused},
		{"O_replace_lateCopies", lateReplaces},
		{"O_pinned", pinned},
		{"O_pinned_moved", pinMoved},
		{"O_pinned_maxAge", pinnedMaxAge},
		{"O_pinned_oneMoment", pinsOneMoment},
		{"O_pinned_trimmedBetweenPages", pinnedTrimmedBetweenPages},
		{"O_pinned_replacedBetweenPages", pinReplacedBetweenPages},
		{"O_pinned_clearedBetweenPages", pinsClearedBetweenPages},
		{"pinned_expires", pinnedExpires},
		{"O_fork", forked},
		{"O_fork_refused_nothingWritten", forkRefused},
		{"O_fork_tokensRise", forkedTokensRise},
		{"O_fork_oneStep", forkedAtOnce},
		{"O_fork_betweenPages", forkedBetweenPages},
		{"O_storesShareLease", storesShareLease},
		{"S2_olderLease_refused", refusesOlderLeases},
		{"S2_olderLeaseAfterExpiry_refused", refusesAfterExpiry},
		{"S2_handoffBeforeExpiry_refused", refusesAfterExpiryWithinATurn},
		{"O_expiredInTurn_afterSave_gone", goneAfterSave},
		{"O_expiredInTurn_afterLoad_gone", goneAfterLoad},
		{"O_expiredInTurn_afterEmptyLoad_gone", goneAfterEmptyLoad},
		{"O_expiredInTurn_afterSaveAndRaise_gone", goneAfterSaveAndRaise},
		{"O_expiredInTurn_afterLoadAndRaise_gone", goneAfterLoadAndRaise},
		{"O_expiredInTurn_afterOtherStore_gone", goneAfterOtherStore},
		{"O_lateCopiesUnderLease", lateCopies},
		{"O_lateSavesOfOtherStore", lateSavesOfTheOtherStore},
		{"S2_lowToken_ownerGetsHigher", lowToken},
		{"S2_overtakenHolder_refused", overtakenHolder},
		{"lastWrites", lastWrites},
		{"O_close_onceOrClosed", closedMessages},
		{"O_close_errors", closedErrors},
		{"S2_close_raisesMark", closeRaisesMark},
		{"S2_close_endedLeases", endedLeases},
		{"O_close_conditions", closeHasConditions},
		{"O_close_arrivals", arrivals},
		{"O_close_lateCopies", lateCloses},
		{"close_forgotten", closedForgotten},
		{"O_answerAll_allOrNothing", answeredAll},
		{"S2_answerAll_refused_nothingDecided", answeredAllRefused},
		{"O_answerAll_answeredInside_supersedes", answeredAllInside},
		{"O_answerAll_replaceKeepsIDs", replacedKeepsAlso},
		{"O_inbox_rules", putsHaveRules},
		{"O_inbox_delete", putsAroundDelete},
		{"S2_inbox_leases", pendingUnderLeases},
		{"O_inbox_listed", inboxesListed},
		{"C_inbox_badInput", badQuestions},
		{"O_ids_storedOnce", storedOnce},
		{"O_ids_copies", copiesOfIDs},
		{"O_ids_conflictBetweenCopies_unknown", conflictBetweenCopies},
		{"O_ids_read", readByID},
		{"O_ids_afterExpiry", idsAfterExpiry},
		{"S2_ids_readShowsToken", readsByIDShowToken},
		{"ids_forgottenInTime", idsForgotten},
		{"repeatedWrites", repeatedWrites},
		{"C_repeat_Save", repeats("Save")},
		{"C_repeat_SaveOnce", repeats("SaveOnce")},
		{"C_repeat_Answer", repeats("Answer")},
		{"C_repeat_Turn", repeats("Turn")},
		{"C_repeat_Replace", repeats("Replace")},
		{"C_repeat_Clear", repeats("Clear")},
		{"C_repeat_Delete", repeats("Delete")},
		{"idleSessions_expire", idleSessionsExpire},
		{"maxExchangesAndWindow", maxExchangesAndWindow},
		{"O_maxAge_turnsWhole", maxAge},
		{"O_maxAge_byTokens", maxAgeByTokens},
		{"O_limits_turnsWhole", turnsAreNotCut},
		{"queries", queries},
		{"pages", pages},
		{"pages_clearedBetween", clearedBetweenPages},
		{"O_cursors", cursors},
		{"O_cursors_replacedBetweenPages", cursorsReplacedBetween},
		{"entries_codecRefuses", codecRefuses},
		{"entries_everyByte", everyByte},
		{"sessions", sessionsListed},
		{"sessions_endedContext", sessionsOfEndedContext},
		{"badInput", badInput},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(&harness{TB: t, Service: open(t), session: fmt.Sprintf("%s-%d", test.name, time.Now().UnixNano())})
		})
	}
}

// Message is what the tests store.
type Message struct{ Role, Text string }

// Store is what the tests store it in.
type Store = sessionstore.Store[Message, Message]

// Memory is a Store under its lock.
type Memory = lockedmemory.LockedMemory[Message, Message]

type harness struct {
	testing.TB
	Service
	session string
}

var codec = sessionstore.JSON[Message]{TextOf: func(m Message) string { return m.Text }}

// instance is what one process has.
type instance struct {
	*harness
	driver storedriver.Driver
	store  *Store
	locker *distlock.Locker
	memory *Memory
}

// options are those of an instance.
type options struct {
	sessionstore.Retention
	view sessionstore.Options
}

// instance makes one; wrap, if not nil, is put around its driver.
func (h *harness) instance(opts *options, wrap func(storedriver.Driver) storedriver.Driver) *instance {
	h.Helper()
	i := &instance{harness: h, locker: h.Locker(h, &distlock.Options{TTL: 10 * time.Second, Wait: -1})}
	h.Cleanup(func() {
		if err := i.locker.Close(context.Background()); err != nil {
			h.Errorf("closing the Locker: %v", err)
		}
	})
	if opts == nil {
		opts = &options{}
	}
	if i.driver = h.Driver(h, opts.Retention); wrap != nil {
		i.driver = wrap(i.driver)
	}
	var err error
	i.store, err = sessionstore.New(i.driver, lockedmemory.FixedKey(h.session), codec, &opts.view)
	if err == nil {
		i.memory, err = lockedmemory.New(i.store, i.locker, lockedmemory.FixedKey(h.session), nil)
	}
	if err != nil {
		h.Fatal(err)
	}
	return i
}

func question(n any) Message { return Message{"user", fmt.Sprint("q", n)} }
func answer(n any) Message   { return Message{"assistant", fmt.Sprint("a", n)} }

// save saves the exchange of a name.
func (i *instance) save(ctx context.Context, n any) error {
	return i.memory.Save(ctx, question(n), answer(n))
}

func (i *instance) mustSave(ctx context.Context, names ...any) {
	i.Helper()
	for _, n := range names {
		if err := i.save(ctx, n); err != nil {
			i.Fatalf("Save of %v: %v", n, err)
		}
	}
}

// saveOnce stores the exchange of a name under an ID.
func (i *instance) saveOnce(ctx context.Context, id string, n any) error {
	return i.memory.SaveOnce(ctx, id, question(n), answer(n))
}

func (i *instance) mustSaveOnce(ctx context.Context, id string, n any) {
	i.Helper()
	if err := i.saveOnce(ctx, id, n); err != nil {
		i.Fatalf("SaveOnce of %v: %v", n, err)
	}
}

// turn runs fn as a turn, which must succeed.
func (i *instance) turn(fn func(ctx context.Context)) {
	i.Helper()
	err := i.memory.Turn(i.Context(), func(ctx context.Context) error {
		fn(ctx)
		return nil
	})
	if err != nil {
		i.Fatalf("Turn: %v", err)
	}
}

// stale returns the context of an ended turn, with its lease: the context of a holder that was paused
// in the turn. During the turn, fn runs.
func (i *instance) stale(fn func(ctx context.Context)) (ctx context.Context, fence int64) {
	i.Helper()
	i.turn(func(inner context.Context) {
		lease, ok := lockedmemory.Lease(inner)
		if !ok {
			i.Fatal("a turn without a lease")
		}
		ctx, fence = context.WithoutCancel(inner), lease.Fence()
		if fn != nil {
			fn(inner)
		}
	})
	return ctx, fence
}

// has checks what the history is.
func (i *instance) has(names ...any) {
	i.Helper()
	messages, err := i.store.Load(i.Context(), "")
	if err != nil {
		i.Errorf("Load: %v", err)
	}
	want := make([]Message, 0, 2*len(names))
	for _, n := range names {
		want = append(want, question(n), answer(n))
	}
	if !slices.Equal(messages, want) {
		i.Errorf("the history is %s\nbut should be %s", text(messages), text(want))
	}
}

func text(messages []Message) string {
	words := make([]string, len(messages))
	for i, m := range messages {
		words[i] = m.Text
	}
	if len(words) > 40 {
		words = append(words[:40], "…")
	}
	return "[" + strings.Join(words, " ") + "]"
}

const staleAdvice = "if this repeats, compare Namespace and server of the Lockers of all instances"

// refused checks that an access was refused as stale, with its own token and a mark of at least another one.
func (i *instance) refused(what string, err error, fence, mark int64) {
	i.Helper()
	var stale *sessionstore.StaleError
	switch {
	case !errors.As(err, &stale) || !errors.Is(err, distlock.ErrLost):
		i.Errorf("%s: %v; want a StaleError", what, err)
	case !strings.HasSuffix(err.Error(), "; "+staleAdvice) || strings.Count(err.Error(), "lease lost") > 1:
		i.Errorf("%s: the error does not end with its advice, or says twice that the lease is lost: %v", what, err)
	case stale.Fence != fence || stale.MarkToken != 0 && stale.MarkToken < mark:
		i.Errorf("%s: refused with %d for token %d; want at least %d, for %d", what, stale.MarkToken, stale.Fence, mark, fence)
	case mark > 0 && stale.MarkToken == 0:
		i.Errorf("%s: the refusal does not say which token the store has seen: %v", what, err)
	}
}
