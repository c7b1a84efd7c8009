# Everything a newcomer needs is `make demo` and `make test`. `make help` lists
# the rest.

GO       ?= go
# How long each target of `make fuzz` runs.
FUZZTIME ?= 10s
# Options of the programs that `make demo` and `make bench` run.
ARGS     ?=

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# The version is set below; asking git about it once more fails where the
# repository belongs to another user.
export GOFLAGS += -buildvcs=false

BIN     := bin/ramet
SENTRY  := internal/engine/sentrybin/elf/ramet-sentry
GUEST   := internal/engine/sentrybin/elf/ramet-guest
GATEWAY := internal/engine/sentrybin/elf/ramet-gateway
CACHE   := .cache
RUNSC   := $(CACHE)/runsc
LOG     := $(CACHE)/test.log
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
# grpcnotrace keeps the linker's dead-code elimination.
TAGS    := grpcnotrace
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: build
build: $(SENTRY) ## build bin/ramet
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/ramet

# The programs that ramet embeds: the one that sandboxes run in, the command
# inside of those that may control themselves, and the one that opens connections.
.PHONY: $(GUEST)
$(GUEST):
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./cmd/ramet-guest

.PHONY: $(GATEWAY)
$(GATEWAY):
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./cmd/ramet-gateway

.PHONY: $(SENTRY)
$(SENTRY): $(GUEST) $(GATEWAY)
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '-s -w' -o $@ ./cmd/ramet-sentry

.PHONY: man
man: build ## write man pages of all commands to bin/man/man1
	$(BIN) man bin/man/man1

.PHONY: docs
docs: $(SENTRY) ## write what is generated from the code: docs/cli.md, api/openapi.json, docs/rest-api.md, types and references of the SDKs
	CGO_ENABLED=0 $(GO) test -count=1 ./cmd/ramet -run TestReferenceIsCurrent -update
	CGO_ENABLED=0 $(GO) run ./internal/docgen
	if command -v python3 >/dev/null; then python3 sdk/python/tools/models.py; python3 sdk/python/tools/reference.py; fi
	sdk/typescript/tools/types.sh

.PHONY: demo
demo: build ## show the main job on this machine
	$(BIN) demo $(ARGS)

.PHONY: bench
bench: build $(RUNSC) ## measure, side by side with gVisor's own runsc
	$(BIN) bench --runsc $(RUNSC) $(ARGS)

.PHONY: bench-sdk
bench-sdk: sdk ## measure the SDKs against the daemon's own figures
	@sdk/bench/run.sh $(CACHE) $(BIN) $(ARGS)

# Stock runsc of the gVisor that go.mod pins.
.PHONY: $(RUNSC)
$(RUNSC):
	CGO_ENABLED=0 $(GO) build -o $@ gvisor.dev/gvisor/runsc

# Tests come in two kinds. Those whose binary links gVisor's kernel become
# sentries themselves and must be built without cgo: a sentry gives up its
# privileges in all threads, and Go refuses to do that with cgo. All others run
# with the race detector, which needs cgo and so a C compiler.
#
# All parts run even if one fails, and what they say comes once more at the end,
# in go test's own words, followed by the last lines of each test that failed.
.PHONY: test
test: oracle $(SENTRY) ## run go vet and all tests
	@mkdir -p $(CACHE) && rm -f $(LOG)
	@failed=; $(MAKE) --no-print-directory --keep-going vet test-unit test-sentry test-python test-typescript || failed=1; \
	echo; echo '== skipped'; grep '^skip:' $(LOG) || echo nothing; \
	echo; echo '== summary'; grep -E '^(ok|FAIL|panic:|--- FAIL)' $(LOG) || failed=1; \
	test -z "$$failed" || { echo; echo '== failed'; awk -f .ci/failed.awk $(LOG); false; }

.PHONY: vet
vet: $(SENTRY)
	@echo '== go vet'
	@said=$$($(GO) vet ./... 2>&1) || { { echo "$$said"; printf 'FAIL\tgo vet\n'; } | tee -a $(LOG); false; }

# go test starts packages in the order in which they are named. These take longest and come
# first: else one of them runs alone at the end.
LONGEST := test/fork test/node test/fs test/process test/snapshot test/compare test/restapi internal/engine/interp \
	internal/storage/cowfs internal/cli test/docs internal/image internal/node/resting internal/node/capture

# The packages whose test binary links gVisor's kernel, or forks itself as sentries do (yes), or
# does not (no). Sentries are built without cgo, and the race detector needs that.
define packages
$$($(GO) list -test -f '{{.ImportPath}}{{range .Deps}}{{if eq . "gvisor.dev/gvisor/pkg/sentry/kernel"}} yes{{end}}{{end}}' ./... \
	| awk '$$1 ~ /\.test$$/ && (NF > 1 || $$1 ~ /\/selffork\.test$$/) == ("$(1)" == "yes") {sub(/\.test$$/, "", $$1); print $$1}' \
	| awk -v longest='$(LONGEST)' '{all[n++] = $$0; at = $$0; sub(/^[^\/]*\/[^\/]*\//, "", at); named[at] = $$0} \
		END {m = split(longest, first, " "); for (i = 1; i <= m; i++) if (first[i] in named) {print named[first[i]]; done[named[first[i]]] = 1} \
			for (i = 0; i < n; i++) if (!(all[i] in done)) print all[i]}')
endef

report := 2>&1 | awk -f .ci/quiet.awk | tee -a $(LOG)

# A program with the race detector waits a second at its end for races that it has not told
# of, and tests run hundreds of programs.
.PHONY: test-unit
test-unit: $(SENTRY)
	@mkdir -p $(CACHE)
	@cgo=1; race=-race; cc=$$($(GO) env CC); \
	command -v $$cc >/dev/null || { cgo=0; race=; echo "skip: race detector: there is no C compiler ($$cc)" | tee -a $(LOG); }; \
	echo "== go test $$race, packages that do not link gVisor's kernel"; \
	GORACE=atexit_sleep_ms=0 RAMET_TEST_BUILD=1 CGO_ENABLED=$$cgo $(GO) test -v $$race -timeout 10m $(call packages,no) $(report)

# One more package runs than there are processors, as suites wait a third of their time.
#
# RAMET_TEST_BUILD has the image made that databases, interpreters and servers are in, of
# Debian packages, and Python's libraries and Node's own build installed with pip and npm.
# All are kept in the user's cache. Where there is no mirror their tests are skipped.
.PHONY: test-sentry
test-sentry: $(SENTRY)
	@mkdir -p $(CACHE)
	@echo "== go test, packages that link gVisor's kernel, as $$(id -un)"
	@RAMET_TEST_BUILD=1 CGO_ENABLED=0 $(GO) test -v -p $$(($$(nproc) + 1)) -timeout 45m $(call packages,yes) $(report)

# The Python SDK, with a virtual environment in the cache. Where there is no package index it is
# skipped, and says so.
.PHONY: test-python
test-python: build ## check and test the Python SDK
	@mkdir -p $(CACHE)
	@echo "== Python SDK"
	@RAMET_TEST_BUILD=$${RAMET_TEST_BUILD:-1} sdk/python/tools/test.sh $(CACHE) $(BIN) 2>&1 | tee -a $(LOG)

# Frameworks that adapters of the Python SDK are for, with a virtual environment for each in the cache.
.PHONY: test-integrations
test-integrations: build ## test the Python SDK's adapters with their frameworks
	@mkdir -p $(CACHE)
	@RAMET_TEST_BUILD=$${RAMET_TEST_BUILD:-1} sdk/python/tools/integrations.sh $(CACHE) $(BIN)

.PHONY: sdk
sdk: build sdk-typescript ## build the packages of the SDKs: with the program, and without
	@mkdir -p $(CACHE)
	@sdk/python/tools/build.sh $(CACHE) $(BIN)

.PHONY: sdk-typescript
sdk-typescript: build
	@sdk/typescript/tools/pack.sh

# Node and npm packages come from where npm is configured to take them from, and are kept in .cache.
.PHONY: test-typescript
test-typescript: build ## check and test the TypeScript SDK
	@mkdir -p $(CACHE)
	@echo '== sdk/typescript'
	@sdk/typescript/tools/test.sh $(report)

# Wheels, npm packages, a tarball, a Debian package, their digests and what they are made of.
.PHONY: dist
dist: man sdk ## build all that is released, in dist
	@packaging/dist.sh $(CACHE)

# Two builds of what is released, compared, and installed in a clean root file system.
.PHONY: test-dist
test-dist: ## build what is released twice, compare, install and try it
	RAMET_TEST_DIST=1 $(GO) test -v -count=1 -timeout 1h ./packaging -run TestDist

# fsck.erofs judges our images besides gVisor's reader. Nothing depends on it.
.PHONY: oracle
oracle:
	@if ! command -v fsck.erofs >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get -q install -y --no-install-recommends erofs-utils || { apt-get -q update && apt-get -q install -y --no-install-recommends erofs-utils; }; } >/dev/null 2>&1 || echo 'erofs-utils cannot be installed: its part of the tests is skipped'; fi

# The same tests with larger counts, as root or as an ordinary user: kills at random moments
# KILLS times each, random operations on files and requests to the REST interface for SOAK
# each, and other random choices than those of `make test`.
KILLS ?= 100
SOAK  ?= 10m
.PHONY: soak
soak: $(SENTRY) ## the suites with KILLS kills of each kind, and for SOAK what is random
	RAMET_TEST_BUILD=1 RAMET_TEST_SEED=random RAMET_TEST_KILLS=$(KILLS) RAMET_FS_FUZZ=$(SOAK) RAMET_SOAK=$(SOAK) \
		CGO_ENABLED=0 $(GO) test -v -count=1 -timeout 24h $$($(GO) list ./test/... | grep -v /docs$$)
	RAMET_TEST_BUILD=1 RAMET_SOAK=$(SOAK) $(GO) test -v -count=1 ./test/docs -run '^TestClient'
	RAMET_TEST_BUILD=all $(MAKE) --no-print-directory test-python test-typescript # with all recipes
	$(MAKE) --no-print-directory test-integrations
	$(MAKE) --no-print-directory test-dist

.PHONY: race
race: $(SENTRY) ## run the unit tests with the race detector, several times
	CGO_ENABLED=1 $(GO) test -race -count=5 -timeout 30m $(call packages,no)

.PHONY: lint
lint: $(SENTRY) ## gofmt, go vet and staticcheck
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "not formatted: $$files"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

.PHONY: fuzz
fuzz: $(SENTRY) ## run each fuzz target for FUZZTIME
	@$(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/ {t[n++] = $$1} /^ok/ {for (i = 0; i < n; i++) print $$2, t[i]; n = 0}' | while read -r package target; do \
		echo "== $$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s "$$package"; done

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist $(CACHE) $(SENTRY) $(GUEST) $(GATEWAY)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile
