# Everything a newcomer needs is `make demo` and `make test`.

GO      ?= go
BIN     := bin/ramet
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
# grpcnotrace keeps the linker's dead-code elimination.
TAGS    := grpcnotrace
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

.PHONY: build
build:
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/ramet
