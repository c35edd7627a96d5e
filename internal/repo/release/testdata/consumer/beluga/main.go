// Beluga makes the memory "locked" of Beluga.
package main

import (
	"fmt"

	"github.com/lookatitude/beluga-ai/v2/config"
	"github.com/lookatitude/beluga-ai/v2/memory"

	_ "github.com/belugalock/belugalock/lockedmemory/belugamemory"
)

func main() {
	_, err := memory.New("locked", config.ProviderConfig{BaseURL: "mem://"})
	fmt.Println("error:", err)
}
