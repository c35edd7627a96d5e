package belugamemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

// A memory by name. With redis://… as BaseURL, all instances of the application share the
// conversations.
func Example() {
	named, err := memory.New("locked", config.ProviderConfig{BaseURL: "mem://"})
	if err != nil {
		log.Fatal(err)
	}
	mem := named.(*belugamemory.Memory)
	defer mem.Close(context.Background())

	ctx := core.WithSessionID(context.Background(), "conversation-42")
	err = mem.Turn(ctx, func(ctx context.Context) error {
		history, err := mem.Load(ctx, "") // inside, so that no other instance adds to it before Save
		if err != nil {
			return err
		}
		question := schema.NewHumanMessage("Where is my order?")
		answer := schema.NewAIMessage(fmt.Sprintf("On its way. I knew %d messages.", len(history))) // the model
		return mem.Save(ctx, question, answer)
	})
	if err != nil {
		log.Fatal(err)
	}
	history, err := mem.Load(ctx, "")
	fmt.Println(len(history), err)
	// Output: 2 <nil>
}

// The configuration may come from JSON.
func ExampleNew() {
	var cfg config.ProviderConfig
	err := json.Unmarshal([]byte(`{
		"base_url": "mem://",
		"options": {"namespace": "support-bot", "ttl": "20s", "busy": "refuse", "window": 50}
	}`), &cfg)
	if err != nil {
		log.Fatal(err)
	}
	mem, err := belugamemory.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Close(context.Background())
	fmt.Println(fencing.Options(mem.Locker()).TTL)

	cfg.Options["ttl"] = 20
	_, err = belugamemory.New(cfg)
	fmt.Println(strings.ReplaceAll(err.Error(), ": ", ":\n"))
	// Output:
	// 20s
	// belugamemory.new [invalid_input]:
	// invalid configuration:
	// distlock:
	// invalid option:
	// option "ttl":
	// must not be a number; docs/reference/beluga.md has all options
}

func ExampleCodec() {
	var codec belugamemory.Codec
	text, err := codec.Encode(&schema.HumanMessage{
		Parts:    []schema.ContentPart{schema.TextPart{Text: "Hello"}},
		Metadata: map[string]any{"waited": 90 * time.Second},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text))

	message, err := codec.Decode(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	waited := message.GetMetadata()["waited"].(time.Duration)
	fmt.Println(message.GetRole(), codec.Text(message), waited)
	// Output:
	// {"v":1,"role":"human","parts":[{"type":"text","text":"Hello"}],"metadata":{"waited":{"$time.Duration":"1m30s"}}}
	// human Hello 1m30s
}
