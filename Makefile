# Everything a newcomer needs is `make demo` and `make test`.

GO      ?= go
BIN     := bin/ramet
SENTRY  := internal/sentrybin/elf/ramet-sentry
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
# grpcnotrace keeps the linker's dead-code elimination.
TAGS    := grpcnotrace
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

.PHONY: build
build: $(SENTRY)
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/ramet

# The program that sandboxes run in, which ramet embeds.
.PHONY: $(SENTRY)
$(SENTRY):
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '-s -w' -o $@ ./cmd/ramet-sentry
