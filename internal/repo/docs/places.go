package docs

import "testing"

// Place is where a page states what a test checks. A section moves with a change of one line here.
type Place struct{ Page, Heading string }

// The places of everything that a test compares with the code.
var (
	LockOptions      = Place{"docs/reference/configuration.md", "## distlock.Options"}
	MemoryOptions    = Place{"docs/reference/configuration.md", "## lockedmemory.Options"}
	RetentionOptions = Place{"docs/reference/configuration.md", "## sessionstore.Retention"}
	StoreOptions     = Place{"docs/reference/configuration.md", "## sessionstore.Options"}
	TracingOptions   = Place{"docs/reference/configuration.md", "## Options of tracing.New"}
	LockURLs         = Place{"docs/reference/configuration.md", "## URLs of lockurl.Open"}
	TTLs             = Place{"docs/when-to-use.md", "## Choose a TTL"}
	Waits            = Place{"docs/when-to-use.md", "## Choose a wait"}

	// Tables of errors, and blocks of error texts.
	Errors         = Place{"docs/reference/errors.md", "## Errors"}
	Repetitions    = Place{"docs/reference/errors.md", "## Safe repetitions"}
	PostgresErrors = Place{"docs/reference/errors.md", "### PostgreSQL"}
	QuorumErrors   = Place{"docs/reference/errors.md", "### Quorum"}
	ErrorTexts     = Place{"docs/reference/errors.md", "## Error texts"}

	// Rights: the first block of Redis commands, or of SQL.
	LockRights     = Place{"docs/reference/keys-and-rights.md", "## Rights for locks"}
	StoreRights    = Place{"docs/reference/keys-and-rights.md", "## Rights for sessions"}
	ClusterRights  = Place{"docs/reference/keys-and-rights.md", "## Rights in a Cluster"}
	OperatorRights = Place{"docs/reference/keys-and-rights.md", "## Rights of an operator"}
	PostgresRights = Place{"docs/reference/keys-and-rights.md", "## Rights in PostgreSQL"}
	QuorumRights   = Place{"docs/reference/keys-and-rights.md", "## Rights on a quorum"}

	// Telemetry. The program sends its spans to a collector.
	Questions        = Place{"docs/howto/tracing-and-metrics.md", "## Ten questions"}
	TelemetryProgram = Place{"docs/howto/tracing-and-metrics.md", "## Switch it on"}
	Spans            = Place{"docs/howto/tracing-and-metrics.md", "## Spans"}
	Metrics          = Place{"docs/howto/tracing-and-metrics.md", "## Metrics"}
	LogLines         = Place{"docs/howto/tracing-and-metrics.md", "## Log lines"}

	// Programs that a test treats in a special way. A test finds and runs the other programs by itself.
	UnlockedProgram = Place{"README.md", "## Example"} // loses turns without its call of Do
	BelugaProgram   = Place{"docs/howto/beluga.md", "## Get a locked memory"}

	BelugaConfigurations = Place{"docs/reference/beluga.md", "## Configuration of a memory"}
	BelugaOptions        = Place{"docs/reference/beluga.md", "### Options"}
	RunnerOptions        = Place{"docs/reference/beluga.md", "### Options of a Runner"}

	// Commands and settings for operators.
	FirstLook        = Place{"docs/operations/runbook.md", "## First look"}
	AfterFailover    = Place{"docs/operations/runbook.md", "## After a failover"}
	RedisSettings    = Place{"docs/operations/deploy.md", "## Settings of Redis"}
	RedisLogLine     = Place{"docs/operations/troubleshooting.md", "## Lines in the log"}
	FailoverSettings = Place{"docs/howto/sentinel-and-cluster.md", "## What a failover can break"}

	Faults = Place{"docs/reports/faults-2026-11.md", "## Faults"} // all tables below
)

// Table returns the rows of the first table of the place, without its head, with the backquotes taken off.
func (p Place) Table(t testing.TB) [][]string {
	t.Helper()
	return readPage(t, p.Page).table(t, p.Heading)
}

// Blocks returns the texts of the blocks of one language in the place. There is at least one.
func (p Place) Blocks(t testing.TB, lang string) (texts []string) {
	t.Helper()
	for _, b := range p.blocks(t, lang) {
		texts = append(texts, b.text)
	}
	return texts
}

func (p Place) blocks(t testing.TB, lang string) (found []block) {
	t.Helper()
	page := readPage(t, p.Page)
	from, to := page.section(t, p.Heading)
	for _, b := range page.blocks {
		if b.line > from && b.line < to && b.lang == lang {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s: no %s block below %q", p.Page, lang, p.Heading)
	}
	return found
}

// Program returns the first whole program in the place.
func (p Place) Program(t testing.TB) Program {
	t.Helper()
	page := readPage(t, p.Page)
	from, to := page.section(t, p.Heading)
	for _, program := range page.Programs() {
		if program.Line > from && program.Line < to {
			return program
		}
	}
	t.Fatalf("%s: no program below %q", p.Page, p.Heading)
	return Program{}
}
