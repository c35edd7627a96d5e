package faultwork

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"

	"github.com/belugalock/belugalock/internal/test/campaign/instance"
)

// writer is an agent whose model calls a tool once for each question. The tool writes a key of each scope.
func writer(ttl time.Duration) (agent.Agent, error) {
	tools := functiontool.Config{Name: "write", Description: "writes"}
	write, err := functiontool.New(tools, func(ctx agent.Context, in said) (said, error) {
		if err := think(ctx, ttl); err != nil {
			return said{}, err
		}
		return writeState(ctx.State(), in)
	})
	if err != nil {
		return nil, err
	}
	// ⚑ Without a Mode, the first runs at once have a data race in ADK's Runner.
	return llmagent.New(llmagent.Config{
		Name: "writer", Model: witness{ttl}, Tools: []tool.Tool{write}, Mode: llmagent.ModeChat,
	})
}

type said struct {
	Text string `json:"text"`
}

// writeState sets a key of the client in each scope. The result has the former values.
func writeState(state session.State, call said) (result said, err error) {
	question, _, _ := strings.Cut(strings.TrimPrefix(call.Text, "call of "), " knowing ")
	turn, client, _ := strings.Cut(strings.TrimPrefix(question, "question "), " of ")
	result.Text = "result of " + question + " before"
	for _, scope := range instance.Scopes {
		before, err := state.Get(scope + client)
		if err != nil && !errors.Is(err, session.ErrStateKeyNotExist) {
			return result, err
		}
		result.Text += fmt.Sprint(" ", before)
		if err := state.Set(scope+client, turn); err != nil {
			return result, err
		}
	}
	return result, nil
}

// witness is a model. It says what it was given.
type witness struct{ ttl time.Duration }

func (witness) Name() string { return "witness" }

func (w witness) GenerateContent(ctx context.Context, req *model.LLMRequest, _ bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		var known []string
		for _, c := range req.Contents {
			text, _ := textOf(c)
			known = append(known, text)
		}
		if err := think(ctx, w.ttl); err != nil {
			yield(nil, err)
			return
		}
		last := known[len(known)-1]
		slices.Sort(known) // ⚑ ADK shows a result beside its call, wherever that stands
		knowing := " knowing " + instance.Digest(known)
		args := map[string]any{"text": "call of " + last + knowing}
		content := genai.NewContentFromFunctionCall("write", args, genai.RoleModel)
		if of, ok := strings.CutPrefix(last, "result of "); ok {
			of, _, _ = strings.Cut(of, " before ")
			content = genai.NewContentFromText("answer to "+of+knowing, genai.RoleModel)
		}
		yield(&model.LLMResponse{Content: content}, nil)
	}
}

// think takes a time, now and then long enough for a renewal. Half of the time it ignores ctx.
func think(ctx context.Context, ttl time.Duration) error {
	if rand.IntN(2) == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	takes := 4 * time.Millisecond
	if rand.IntN(40) == 0 {
		takes = ttl
	}
	select {
	case <-time.After(rand.N(takes)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
