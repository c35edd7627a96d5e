# The modules that can be built everywhere, one per line, the root first.
MODULES := \
	. \
	adksession \
	adksession/faultwork \
	bench \
	examples/adk \
	examples/agent/browsertest \
	docs/dashboards/check \
	tracing/collectortest

# The modules that import Beluga, which cannot be downloaded everywhere. Here they are tested against a contract that stands in for it.
BELUGA := \
	lockedmemory/belugamemory \
	examples/beluga
CONTRACT := GOWORK="$(CURDIR)/contract.work"

# The newest releases that run on both supported Go versions.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.7.0
LICENCES := github.com/google/go-licenses@v1.6.0

# The build tag of tests that need more than servers.
TAGS := browser

# A module is tested as its users get it, never through a workspace file.
export GOWORK := off
# Without the paths of this machine in it, a build serves all clones, and the consumers of a rehearsed release.
export GOFLAGS := -trimpath

# $(call each,COMMAND) runs a command in every module and stops at the first failure; $(call in,MODULES,COMMAND) does it in some.
each = $(call in,$(MODULES),$(1))
in = @set -e; for module in $(1); do (cd $$module && $(2)); done

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## Make sure the servers that the tests start are installed
	@scripts/deps.sh

# make test leaves out these packages and the tests of these names. They look for the unexpected,
# show recipes, rehearse a release, need several servers, break their server, compile all mutants, or show that
# tests of an application can use miniredis. make test-all runs just those.
PROGRAMS := examples/recipes internal/repo/release internal/test/privacy examples/flocklock
MEASURING := internal/test/campaign internal/test/sweeps
EXPLORING := $(PROGRAMS) $(MEASURING)
WORDS := [Ss]entinel|[Cc]luster|[Pp]gBouncer|[Ss]tandby|[Rr]edlock[35]|_ownServers
# Cases of the suite of stores that do not depend on where the locks are. make test runs them
# where the locks are beside.
ELSEWHERE := O_answer|O_append|O_cursors|O_fork|O_ids|O_limits|O_maxAge|O_pinned|O_replace|answer|entries|ids_|idle|max|pages|pinned|queries|sessions|badInput
SEVERAL := $(WORDS)|^TestFaults$$/^(sentinel|cluster|postgres|standby|redlock[35])$$|^TestTopology/^(sentinel|cluster)$$|^TestOpen_tls/^(sentinel|cluster)$$|^TestConformance$$/^5Nodes$$|^TestConformance_locksElsewhere$$/^($(ELSEWHERE))|^TestMutants_compile$$

# make check vets. A linker that leaves the tables of debuggers out is sooner done. No goroutine outlives the
# tests of a package, so the race detector need not wait a second for it.
GOTEST := GORACE=atexit_sleep_ms=0 go test -race -vet=off -ldflags=-w -count=1 -timeout 10m
# Tests wait for servers more than they work: two packages more at a time than there are processors.
AT_ONCE := -p $$(($$(getconf _NPROCESSORS_ONLN) + 2))
QUORUM := ./distlock/redlock/internal/quorum
# Packages start in the order in which they are named, so long ones come first.
LONG := ./distlock/redislock ./lockedmemory/sessionstore/redisstore ./distlock/pglock ./lockedmemory/sessionstore/pgstore ./examples/agent
GUARDING = $(LONG) $$(go list ./... | grep -vE '/($(subst $(eval) ,|,$(EXPLORING))|internal/repo)(/|$$)')
# Checks of the repository read files, and need no race detector.
REPO := ./internal/repo/directions ./internal/repo/docs ./internal/repo/mutants ./internal/repo/totals
# The packages with tests of SEVERAL.
SPREAD = ./internal/test/matrix ./distlock/lockurl $(QUORUM) $(LONG) $$(grep -slE '^func Test(Topology|[A-Za-z0-9_]*($(WORDS)))' \
	$$(go list -f '{{.Dir}}' $(GUARDING) | sed 's,$$,/*_test.go,') | xargs -n 1 dirname | sort -u)

.PHONY: test
test: deps ## Run the tests of each package with the race detector, on one Redis and one PostgreSQL: two minutes
	$(GOTEST) $(AT_ONCE) -skip '_miniredis|$(SEVERAL)' $(GUARDING)
	go test -vet=off -count=1 -skip '$(SEVERAL)' $(REPO)

.PHONY: test-all
test-all: deps ## Run the tests that make test leaves out: Sentinel, Cluster, quorums, PgBouncer, a standby, random faults, Beluga's contract, dashboards, each benchmark once
	@scripts/deps.sh prometheus
	$(GOTEST) $(AT_ONCE) -run '$(SEVERAL)' $(SPREAD)
	go test -vet=off -count=1 -run '$(SEVERAL)' ./internal/repo/docs ./internal/repo/mutants
	@# Programs wait more than they work. The others measure how soon things happen, so each has the machine to itself.
	$(GOTEST) $(AT_ONCE) $(PROGRAMS:%=./%/...)
	$(GOTEST) -p 1 $(MEASURING:%=./%/...)
	$(CONTRACT) $(GOTEST) $(AT_ONCE) $(BELUGA:%=./%/...)
	printf '%s\n' $(filter-out .,$(MODULES)) | xargs -P 2 -I {} sh -c 'cd {} && $(GOTEST) $(AT_ONCE) ./...'
	@# Without the race detector, random tests play all their rounds, and miniredis is quick enough.
	go test -vet=off -ldflags=-w -count=1 -run 'ollowTheModel|tableOfStates|promisesUnderFaults|_miniredis' $(QUORUM) ./distlock/redislock ./lockedmemory/sessionstore/redisstore
	@# The commands of the reports still run.
	$(MAKE) --no-print-directory microbench FLAGS='-benchtime 1x'

.PHONY: test-beluga
test-beluga: deps ## Test what imports Beluga against the real one, where it can be had
	$(call in,$(BELUGA),go test -race -tags beluga -count=1 -timeout 10m ./... && go mod tidy -diff)

.PHONY: test-browser
test-browser: ## Look at the pages of the examples in a real browser
	@scripts/deps.sh browser
	cd examples/agent/browsertest && go test -tags browser -count=1 -timeout 4m ./...

.PHONY: check
check: ## Check formatting, vet, staticcheck, import directions, go.mod
	@unformatted=$$(gofmt -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi
	$(call each,go vet -tags $(TAGS) ./...)
	$(call each,go run $(STATICCHECK) -tags $(TAGS) ./...)
	$(CONTRACT) go vet $(BELUGA:%=./%/...)
	$(CONTRACT) go run $(STATICCHECK) $(BELUGA:%=./%/...)
	go test ./internal/repo/directions
	@# What go mod tidy writes for the modules that import Beluga depends on Beluga itself: test-beluga looks at that.
	$(call each,go mod tidy -diff)

.PHONY: fmt
fmt: ## Format all Go files
	gofmt -w .

.PHONY: bench
bench: deps ## Compare with other lock libraries, in one run of 2 minutes; FLAGS="-only serial,cross"
	cd bench && go run . $(FLAGS)

.PHONY: microbench
microbench: deps ## Run the benchmarks of the drivers that need no comparison; FLAGS="-benchtime 1x"
	go test -vet=off -ldflags=-w -run '^$$' -bench . $(FLAGS) $$(grep -rl --include='*_test.go' --exclude-dir=belugamemory '^func Benchmark' distlock lockedmemory | sed 's,^\(.*\)/.*,./\1,' | sort -u)
	$(CONTRACT) go test -vet=off -ldflags=-w -run '^$$' -bench . $(FLAGS) ./lockedmemory/belugamemory/belugarunner

.PHONY: fuzz
fuzz: ## Look for names, replies, messages and entries that break the drivers, FUZZTIME (1m) each
	go test -run '^$$' -fuzz FuzzKeys -fuzztime $(or $(FUZZTIME),1m) ./distlock/redislock
	go test -run '^$$' -fuzz FuzzReplies -fuzztime $(or $(FUZZTIME),1m) ./distlock/redislock
	go test -run '^$$' -fuzz FuzzWakes -fuzztime $(or $(FUZZTIME),1m) ./distlock/redislock
	go test -run '^$$' -fuzz FuzzStateOf -fuzztime $(or $(FUZZTIME),1m) ./distlock/redlock
	go test -run '^$$' -fuzz FuzzEntries -fuzztime $(or $(FUZZTIME),1m) ./lockedmemory/sessionstore/redisstore
	$(CONTRACT) go test -run '^$$' -fuzz FuzzDecode -fuzztime $(or $(FUZZTIME),1m) ./lockedmemory/belugamemory

.PHONY: pictures
pictures: deps ## Draw docs/pictures again, from real runs: the report page, a waterfall with a link, the panels of the dashboard
	@scripts/deps.sh browser
	@scripts/deps.sh prometheus
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; pictures="$(abspath docs/pictures)"; \
	(cd examples/agent/browsertest && go test -tags browser -count=1 -timeout 4m -run TestPictures . -args -pictures "$$pictures"); \
	(cd docs/dashboards/check && go test -count=1 -run TestPrometheus . -args -plays 9 -record "$$dir/panels.json"); \
	cd bench && go test -count=1 -run TestPanels ./internal/chart -args -panels "$$dir/panels.json" -svg "$$pictures/dashboard.svg"

.PHONY: mutants
mutants: deps ## Take out the guards of the code, one at a time: does a test notice? ONLY=regexp; SINCE=recent MINUTES=5: a sample
	go run ./internal/repo/mutants -only '$(ONLY)' -since '$(SINCE)' -minutes '$(or $(MINUTES),0)'

.PHONY: faults
faults: deps ## Random faults under all workloads for MINUTES (30): WORK=lock,session,draft,election,stop,inbox,beluga,adk,soak ON=node,sentinel,cluster,redlock3,redlock5,postgres SEED=n HITS=worker-3,server-9 FLAGS="-faults none"
	go test $(if $(findstring none,$(FLAGS)),-race) -count=1 -v -timeout $$(($(firstword $(subst ., ,$(or $(MINUTES),30))) + 20))m -run 'TestCampaign$$' ./internal/test/campaign -args \
		-minutes $(or $(MINUTES),30) -seed $(or $(SEED),0) $(if $(WORK),-work $(WORK)) $(if $(ON),-on $(ON)) $(if $(HITS),-hits $(HITS)) $(FLAGS)

.PHONY: vuln
vuln: ## Look for known vulnerabilities (needs the network)
	@# Where Beluga can be had: make vuln MODULES="lockedmemory/belugamemory examples/beluga"
	$(call each,go run $(GOVULNCHECK) ./...)

.PHONY: licences
licences: ## List the licences of the modules that users compile, in docs/licences.md
	go run $(LICENCES) report --template scripts/licences.tpl --ignore $$(go list -m) ./distlock/... ./lockedmemory/... ./tracing/... ./cmd/... 2>/dev/null >docs/licences.new
	mv docs/licences.new docs/licences.md

.PHONY: example
example: ## Run the example: agent instances on shared conversations
	go run ./examples/agent
