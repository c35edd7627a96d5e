package main

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"time"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/functiontool"
	"google.golang.org/genai"
)

const app = "assistant" // the name of the agent, which adkrest takes for the app

// newAgent makes an agent with a tool. Any other model.LLM can stand in the place of the scripted one.
func newAgent(delay time.Duration) (agent.Agent, error) {
	about := functiontool.Config{Name: "order", Description: "Tells when an order arrives"}
	order, err := functiontool.New(about, arrival)
	if err != nil {
		return nil, err
	}
	return llmagent.New(llmagent.Config{Name: app, Model: scripted{delay}, Tools: []tool.Tool{order}})
}

type order struct{ ID string }

// arrival keeps the order in the state of the user, which all sessions of the user share.
func arrival(ctx agent.Context, o order) (map[string]string, error) {
	text := "Order " + o.ID + " arrives on Friday."
	return map[string]string{"text": text}, ctx.State().Set("user:order_"+o.ID, "Friday")
}

// scripted is a model that calls the tool for a message with a number. It repeats the last result of the tool
// and says how many events it saw.
type scripted struct{ delay time.Duration }

var number = regexp.MustCompile(`\d+`)

func (scripted) Name() string { return "scripted" }

// GenerateContent waits before a call, and before each word. At the end is the whole text, which ADK stores.
func (m scripted) GenerateContent(ctx context.Context, req *model.LLMRequest, stream bool,
) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		answer := respond(req.Contents)
		for _, piece := range strings.SplitAfter(answer.Parts[0].Text, " ") { // "" of a call
			select {
			case <-time.After(m.delay):
			case <-ctx.Done(): // the client is gone, the lease is lost, or a stop
				yield(nil, context.Cause(ctx))
				return
			}
			if stream && piece != "" {
				content := genai.NewContentFromText(piece, genai.RoleModel)
				if !yield(&model.LLMResponse{Content: content, Partial: true}, nil) {
					return
				}
			}
		}
		yield(&model.LLMResponse{Content: answer}, nil)
	}
}

func respond(contents []*genai.Content) *genai.Content {
	last := contents[len(contents)-1].Parts[0]
	if id := number.FindString(last.Text); id != "" {
		return genai.NewContentFromFunctionCall("order", map[string]any{"ID": id}, genai.RoleModel)
	}
	text := "Which order?"
	for _, content := range contents {
		if result := content.Parts[0].FunctionResponse; result != nil {
			text = fmt.Sprint(result.Response["text"])
		}
	}
	text = fmt.Sprintf("%s I saw %d events.", text, len(contents))
	return genai.NewContentFromText(text, genai.RoleModel)
}
