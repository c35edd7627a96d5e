package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
)

// list is the memory of one conversation without a store: a list of Redis, or rows of PostgreSQL. It
// knows no lock.
type list struct {
	*server
	name string
	*history.Hitch
	history.Memory // nil: the example neither searches nor clears
}

// Save appends both messages, one after the other, so messages of other instances can come between.
// A message is on its way when its instance is paused, so the end of ctx cannot call it back.
func (l list) Save(ctx context.Context, input, output history.Message) error {
	onItsWay := context.WithoutCancel(ctx)
	for i, m := range []history.Message{input, output} {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		time.Sleep(history.Latency)
		if i == 0 {
			l.At(history.Write)
		}
		if l.pool != nil {
			_, err = l.pool.Exec(onItsWay, "INSERT INTO "+l.messages()+" (list, message) VALUES ($1, $2)", l.name, text)
		} else {
			pipe := l.Pipeline()
			pipe.RPush(onItsWay, l.key(), text)
			pipe.Expire(onItsWay, l.key(), keep)
			_, err = pipe.Exec(onItsWay)
		}
		if err != nil {
			return err
		}
		if i == 0 {
			l.At(history.Answered)
		}
	}
	return nil
}

// Load returns all messages.
func (l list) Load(ctx context.Context, _ string) ([]history.Message, error) {
	var texts [][]byte
	var err error
	if l.pool != nil {
		rows, _ := l.pool.Query(ctx, "SELECT message FROM "+l.messages()+" WHERE list = $1 ORDER BY number", l.name)
		texts, err = pgx.CollectRows(rows, pgx.RowTo[[]byte]) // has the error of Query, too
	} else {
		err = l.LRange(ctx, l.key(), 0, -1).ScanSlice(&texts)
	}
	messages := make([]history.Message, len(texts))
	for i := range texts {
		err = errors.Join(err, json.Unmarshal(texts[i], &messages[i]))
	}
	return messages, err
}

func (l list) key() string { return l.run + ":list:" + l.name }
