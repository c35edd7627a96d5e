package belugamemory_test

import (
	"fmt"
	"time"

	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

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

func ExampleCodec_Document() {
	found := belugamemory.Codec{}.Document(schema.NewAIMessage("It is on its way."))
	fmt.Println(found.Content, found.Metadata)
	// Output: It is on its way. map[role:ai]
}
