package adksession_test

import (
	"testing"

	"github.com/belugalock/belugalock/internal/repo/docs"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestDocs_programOfADKRunsTwiceAtOnce(t *testing.T) {
	docs.Place{Page: "docs/howto/adk.md", Heading: "## Run it twice at once"}.RunsTwiceAtOnce(t, servers.SharedServer().Addr(), "assistant", "")
}
