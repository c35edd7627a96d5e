package adksession

import (
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool/toolconfirmation"
	"google.golang.org/genai"
)

func parts(e *session.Event) []*genai.Part {
	if e.Content == nil {
		return nil
	}
	return e.Content.Parts
}

// confirmations returns the IDs of the confirmations that a user's event answers.
func confirmations(e *session.Event) (ids []string) {
	for _, p := range parts(e) {
		if r := p.FunctionResponse; e.Author == "user" && r != nil && r.Name == toolconfirmation.FunctionCallName {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// answered reports whether an event answers a confirmation whose tool has run. ⚑ ADK runs the tool again for each
// answer.
func answered(history events, e *session.Event) bool {
	for _, id := range confirmations(e) {
		if hasRun(history, id) {
			return true
		}
	}
	return false
}

// hasRun reports whether an answer to a confirmation is followed by a response to the wrapped call. The response
// before the answer asks for the confirmation.
func hasRun(history events, confirmation string) bool {
	var wrapped string
	var answer bool
	for _, e := range history {
		for _, p := range parts(e) {
			switch call, response := p.FunctionCall, p.FunctionResponse; {
			case call != nil && call.Name == toolconfirmation.FunctionCallName && call.ID == confirmation:
				if original, err := toolconfirmation.OriginalCallFrom(call); err == nil {
					wrapped = original.ID
				}
			case response == nil:
			case response.Name == toolconfirmation.FunctionCallName && response.ID == confirmation:
				answer = answer || e.Author == "user"
			case answer && wrapped != "" && response.ID == wrapped:
				return true
			}
		}
	}
	return false
}
