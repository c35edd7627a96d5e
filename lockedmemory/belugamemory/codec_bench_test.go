package belugamemory_test

import (
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// common messages and large ones
func benchmarks() map[string]schema.Message {
	return map[string]schema.Message{
		"human": schema.NewHumanMessage("Where is my order? I expected it on Monday, and it is Thursday now. " +
			"Please check."),
		"ai": &schema.AIMessage{
			Parts:     []schema.ContentPart{schema.TextPart{Text: "One moment.\nI look it up."}},
			ToolCalls: []schema.ToolCall{{ID: "call_1", Name: "find_order", Arguments: `{"customer":"c-7"}`}},
			Usage:     schema.Usage{InputTokens: 120, OutputTokens: 34, TotalTokens: 154},
			ModelID:   "model-1",
			Metadata: map[string]any{"trace": "0af7651916cd43dd8448eb211c80319c", "attempt": 2, "score": 0.75,
				"at": time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC), "tags": []string{"order", "late"}},
		},
		"image 1MB": &schema.HumanMessage{Parts: []schema.ContentPart{
			schema.ImagePart{Data: make([]byte, 1<<20), MimeType: "image/png"}}},
	}
}

func BenchmarkCodec_Encode(b *testing.B) {
	for name, message := range benchmarks() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(encode(b, message))))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = codec.Encode(message)
			}
		})
	}
}

func BenchmarkCodec_Decode(b *testing.B) {
	for name, message := range benchmarks() {
		text := encode(b, message)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = codec.Decode(text)
			}
		})
	}
}
