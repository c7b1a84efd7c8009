# Everything a newcomer needs is `make demo` and `make test`. `make help` lists
# the rest.

GO       ?= go
# How long each target of `make fuzz` runs.
FUZZTIME ?= 10s
# Options of the programs that `make demo` and `make bench` run.
ARGS     ?=

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# One set of build flags for the program, vet, the tests and what tests build, so that each
# package is compiled once (and once with the race detector). The version is set below, and git
# does not serve every clone. grpcnotrace keeps the linker's dead-code elimination.
export GOFLAGS += -buildvcs=false -trimpath -tags=grpcnotrace

# The architecture of what is built, which `make build GOARCH=arm64` changes. The programs of another
# architecture than this machine's are in directories of their own.
HOSTARCH := $(shell $(GO) env GOHOSTARCH)
GOARCH   ?= $(HOSTARCH)
BIN      := $(if $(filter $(HOSTARCH),$(GOARCH)),bin/ramet,bin/linux-$(GOARCH)/ramet)
ELF      := internal/engine/sentrybin/elf/$(GOARCH)
SENTRY   := $(ELF)/ramet-sentry
GUEST    := $(ELF)/ramet-guest
GATEWAY  := $(ELF)/ramet-gateway
CACHE   := .cache
RUNSC   := $(CACHE)/runsc
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

.PHONY: build
build: $(SENTRY) ## build bin/ramet; GOARCH=arm64 for bin/linux-arm64/ramet
	CGO_ENABLED=0 GOARCH=$(GOARCH) $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/ramet

# The programs that ramet embeds: the one that sandboxes run in, the command
# inside of those that may control themselves, and the one that opens connections.
.PHONY: $(GUEST)
$(GUEST):
	CGO_ENABLED=0 GOARCH=$(GOARCH) $(GO) build -ldflags '-s -w' -o $@ ./cmd/ramet-guest

.PHONY: $(GATEWAY)
$(GATEWAY):
	CGO_ENABLED=0 GOARCH=$(GOARCH) $(GO) build -ldflags '-s -w' -o $@ ./cmd/ramet-gateway

.PHONY: $(SENTRY)
$(SENTRY): $(GUEST) $(GATEWAY)
	CGO_ENABLED=0 GOARCH=$(GOARCH) $(GO) build -ldflags '-s -w' -o $@ ./cmd/ramet-sentry

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

# internal/testrun runs all tests, in jobs side by side. PART is a regular expression of jobs
# (test/fork, sdk/python, …), RUN one of tests. TESTFLAGS are further flags, as -jobs 2.
#
# RAMET_TEST_BUILD=1 is the default: the image with databases, interpreters and servers is made
# of Debian packages, and Python's libraries and Node's own build are installed with pip and npm.
# All are kept in the user's cache. Where there is no mirror their tests are skipped.
PART      ?=
RUN       ?=
TESTFLAGS ?=
testrun := CGO_ENABLED=0 $(GO) run ./internal/testrun
chosen  := $(if $(PART),-part '$(PART)') $(if $(RUN),-run '$(RUN)') $(TESTFLAGS)

.PHONY: test
test: oracle build ## run go vet and all tests; PART=test/fork or RUN=TestX for some of them
	@$(testrun) $(chosen)

.PHONY: test-times
test-times: oracle build ## run all tests and record how long they take
	@$(testrun) -record $(TESTFLAGS)

# A test that fails rarely: COUNT runs of it as each user, beside LOAD busy processes.
COUNT ?= 50
LOAD  ?= $(shell echo $$((2 * $$(nproc))))
.PHONY: race
race: build ## repeat the tests of RUN under load, COUNT times: make race RUN=TestX COUNT=50
	@test -n '$(RUN)' || { echo 'RUN is missing: make race RUN=TestX COUNT=50'; exit 2; }
	@$(testrun) -run '$(RUN)' -count $(COUNT) -load $(LOAD) $(TESTFLAGS)

# The Python SDK, with a virtual environment in the cache. Where there is no package index it is
# skipped, and says so.
.PHONY: test-python
test-python: build ## check and test the Python SDK
	@mkdir -p $(CACHE)
	@echo "== Python SDK"
	@RAMET_TEST_BUILD=$${RAMET_TEST_BUILD:-1} sdk/python/tools/test.sh $(CACHE) $(BIN)

# Frameworks that adapters of the Python SDK are for, with a virtual environment for each in the cache.
.PHONY: test-integrations
test-integrations: build ## test the Python SDK's adapters with their frameworks
	@mkdir -p $(CACHE)
	@RAMET_TEST_BUILD=$${RAMET_TEST_BUILD:-1} sdk/python/tools/integrations.sh $(CACHE) $(BIN)

# PROGRAMS are those that packages are made of, each for one architecture.
PROGRAMS ?= $(BIN)
.PHONY: sdk
sdk: build sdk-typescript ## build the packages of the SDKs: with the program, and without
	@mkdir -p $(CACHE)
	@sdk/python/tools/build.sh $(CACHE) $(PROGRAMS)

.PHONY: sdk-typescript
sdk-typescript: build
	@sdk/typescript/tools/pack.sh $(PROGRAMS)

# Node and npm packages come from where npm is configured to take them from, and are kept in .cache.
.PHONY: test-typescript
test-typescript: build ## check and test the TypeScript SDK
	@mkdir -p $(CACHE)
	@echo '== sdk/typescript'
	@sdk/typescript/tools/test.sh

# Wheels, npm packages, and for x86-64 and arm64 a tarball and a Debian package, their digests and what they are
# made of.
OTHERARCH := $(if $(filter amd64,$(HOSTARCH)),arm64,amd64)
.PHONY: dist
dist: man ## build all that is released, in dist
	@$(MAKE) --no-print-directory build GOARCH=$(OTHERARCH)
	@$(MAKE) --no-print-directory sdk PROGRAMS="bin/ramet bin/linux-$(OTHERARCH)/ramet"
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

# Tests in an emulated arm64 machine, which is made of Debian packages in the cache. Nothing is installed. TESTS
# chooses other tests than those of test/machine/arm64.tests. Where QEMU or the packages cannot be had it is skipped.
.PHONY: soak-arm64
soak-arm64: ## run tests in an emulated arm64 machine, for some minutes
	@$(MAKE) --no-print-directory build GOARCH=arm64
	@test/machine/arm64.sh $(CACHE)

.PHONY: lint
lint: $(SENTRY) ## gofmt, go vet and staticcheck
	@$(testrun) -lint -part '^(gofmt|go vet|go vet arm64|staticcheck)$$'

.PHONY: fuzz
fuzz: $(SENTRY) ## run each fuzz target for FUZZTIME
	@$(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/ {t[n++] = $$1} /^ok/ {for (i = 0; i < n; i++) print $$2, t[i]; n = 0}' | while read -r package target; do \
		echo "== $$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s "$$package"; done

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist $(CACHE) internal/engine/sentrybin/elf/*/ramet-*

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile
