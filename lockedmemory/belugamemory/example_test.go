package belugamemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/memory"
	"github.com/lookatitude/beluga-ai/v2/memory/stores/inmemory"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
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

// One memory for each conversation. The session of the context has no effect.
func ExampleWrap() {
	locker, err := memlock.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())
	mem, err := belugamemory.Wrap(memory.NewRecall(inmemory.NewMessageStore()), locker,
		lockedmemory.FixedKey("conversation-42"), nil)
	if err != nil {
		log.Fatal(err)
	}
	err = mem.Turn(context.Background(), func(ctx context.Context) error {
		return mem.Save(ctx, schema.NewHumanMessage("hello"), schema.NewAIMessage("hi"))
	})
	fmt.Println(err)
	// Output: <nil>
}

// A message that a queue delivers twice.
func ExampleMemory_Answer() {
	mem, err := belugamemory.New(config.ProviderConfig{BaseURL: "mem://"}) // redis://… for many instances
	if err != nil {
		log.Fatal(err)
	}
	defer mem.Close(context.Background())
	ctx := core.WithSessionID(context.Background(), "conversation-42")
	for range 2 {
		answer, err := mem.Answer(ctx, "message-7", schema.NewHumanMessage("hello"),
			func(ctx context.Context) ([]schema.Message, error) {
				fmt.Println("the model is asked")
				return []schema.Message{schema.NewAIMessage("hi")}, nil
			})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer[0].(*schema.AIMessage).Text())
	}
	// Output:
	// the model is asked
	// hi
	// hi
}

func ExampleSessionKey() {
	ctx := core.WithSessionID(context.Background(), "b:c")
	fmt.Println(belugamemory.SessionKey(ctx))
	fmt.Println(belugamemory.SessionKey(core.WithTenant(ctx, "a")))
	fmt.Println(belugamemory.SessionKey(context.Background()))
	// Output:
	// b%3Ac <nil>
	// a:b%3Ac <nil>
	//  the context names no session: put its ID there with core.WithSessionID
}
