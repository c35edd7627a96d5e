// Package jaeger asks a running Jaeger which turn made another one wait. make test-jaeger runs it.
package jaeger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// trace is one trace in an answer of Jaeger's query API, in the format of GET /api/traces.
type trace struct {
	TraceID   string             `json:"traceID"`
	Spans     []span             `json:"spans"`
	Processes map[string]process `json:"processes"`
}

type span struct {
	TraceID    string      `json:"traceID"`
	SpanID     string      `json:"spanID"`
	Operation  string      `json:"operationName"`
	References []reference `json:"references"`
	Tags       tags        `json:"tags"`
	ProcessID  string      `json:"processID"`
}

// reference leads to a parent or, as FOLLOWS_FROM, to the span of a link.
type reference struct {
	Type    string `json:"refType"`
	TraceID string `json:"traceID"`
	SpanID  string `json:"spanID"`
}

type process struct {
	Tags tags `json:"tags"`
}

type tags []struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

func (t tags) get(key string) any {
	for _, tag := range t {
		if tag.Key == key {
			return tag.Value
		}
	}
	return nil
}

// read returns the traces of an answer.
func read(body []byte) ([]trace, error) {
	var answer struct {
		Data   []trace
		Errors []struct {
			Code int
			Msg  string
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("the answer is not that of Jaeger's query API, check the address: %w", err)
	}
	if len(answer.Errors) > 0 {
		return nil, fmt.Errorf("error %d of Jaeger: %s", answer.Errors[0].Code, answer.Errors[0].Msg)
	}
	return answer.Data, nil
}

// contended is a call that waited for a holder.
type contended struct {
	instance string
	outcome  string
	waited   time.Duration
	holder   reference
}

// contention returns the call of a trace that found the lock busy.
func (t trace) contention() (contended, error) {
	for _, s := range t.Spans {
		if s.Operation != "distlock.acquire" {
			continue
		}
		for _, r := range s.References {
			if r.Type == "FOLLOWS_FROM" && r.TraceID != s.TraceID {
				ms, _ := s.Tags.get("distlock.wait_ms").(float64)
				outcome, _ := s.Tags.get("distlock.outcome").(string)
				return contended{t.instance(s), outcome, time.Duration(ms * float64(time.Millisecond)), r}, nil
			}
		}
	}
	return contended{}, fmt.Errorf("the trace %s has no distlock.acquire with a link", cmp.Or(t.TraceID, "without an ID"))
}

// resolve returns the instance of the span that a link leads to.
func (r reference) resolve(answer []trace) (instance string, err error) {
	for _, t := range answer {
		for _, s := range t.Spans {
			if s.TraceID == r.TraceID && s.SpanID == r.SpanID {
				return t.instance(s), nil
			}
		}
	}
	return "", fmt.Errorf("no span %s is in the trace %s", r.SpanID, r.TraceID)
}

// instance returns the service.instance.id of a span.
func (t trace) instance(s span) string {
	id, _ := t.Processes[s.ProcessID].Tags.get("service.instance.id").(string)
	return id
}

// sameID compares trace IDs. Jaeger may leave out leading zeros.
func sameID(a, b string) bool { return strings.TrimLeft(a, "0") == strings.TrimLeft(b, "0") }
