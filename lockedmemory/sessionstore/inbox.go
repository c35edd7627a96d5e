package sessionstore

import (
	"context"
	"fmt"
	"iter"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Put is Put of lockedmemory.LockedMemory, without its policy.
func (s *Store[M, D]) Put(ctx context.Context, id string, question M) error {
	if err := validID(opPut, id); err != nil {
		return err
	}
	r, err := s.request(ctx, opPut)
	if err != nil {
		return err
	}
	texts, err := s.encode([]M{question})
	if err != nil {
		return err
	}
	if s.driver.Retention().RememberIDs < storedriver.InboxLife { // ⚑ an answered question would be put again
		return invalidOption("%s: Retention.RememberIDs is %s, but an inbox needs %s; nothing was written", opPut,
			s.driver.Retention().RememberIDs, storedriver.InboxLife)
	}
	put := storedriver.Put{Session: r.session, ID: id, Question: texts[0]}
	var v storedriver.Verdict
	for range 2 { // ⚑ not more: a copy that arrives late names an earlier Delete, and is refused
		v, err = repeat(ctx, 0, func() (storedriver.Verdict, error) { return s.driver.Put(ctx, put) })
		if err != nil || v.Outcome != storedriver.Deleted || v.Replayed {
			break
		}
		put.Deleted = v.Mark.Fence
	}
	switch {
	case err != nil, v.Outcome == storedriver.Done, v.Outcome == storedriver.Known:
		return r.callError(err)
	case v.Outcome == storedriver.Full && v.Replayed: // ⚑ the first copy may arrive when there is room
		return fmt.Errorf("%w: %s: the request was sent more than once, and the store refused a copy: %s", outcomeUnknown, r.op,
			r.op.advice())
	}
	return r.refusalError(v.Outcome)
}

// Pending is Pending of lockedmemory.LockedMemory.
func (s *Store[M, D]) Pending(ctx context.Context) (questions []lockedmemory.Question[M], err error) {
	r, err := s.request(ctx, opPending)
	if err != nil {
		return nil, err
	}
	var items []storedriver.Item
	err = r.read(func(a storedriver.Access) (v storedriver.Verdict, err error) {
		v, items, err = s.driver.Pending(ctx, a)
		return v, err
	})
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		q := lockedmemory.Question[M]{ID: item.ID, Age: item.Age}
		if q.Message, err = s.codec.Decode(item.Question); err != nil {
			q.Err = fmt.Errorf("%w: %s: a question cannot be read: %w", ErrCodec, opPending, err)
		}
		questions = append(questions, q)
	}
	return questions, nil
}

// Inboxes yields the names of the sessions that may have a pending question. An error ends the sequence.
func (s *Store[M, D]) Inboxes(ctx context.Context) iter.Seq2[string, error] {
	return allNames(ctx, opInboxes, s.driver.Inboxes)
}
