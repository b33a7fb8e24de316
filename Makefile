# ripstop: `make` builds bin/ripstop, one file with the agent inside. See CONTRIBUTING.md for what each target is for.
GO ?= go
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# -E: the entry point that notes what we were started with before Go changes it (internal/agent/origin).
LDFLAGS := -s -w -E ripstop_entry -X main.version=$(VERSION) $(EXTRA_LDFLAGS)
AGENT := internal/agent/lib/libripstop.so
FUZZTIME ?= 20s

.PHONY: all agent demo test test-go test-race test-real test-keys bench fuzz soak lint fmt generate install uninstall man deps deps-lint deps-test clean

all: bin/ripstop

bin/ripstop: agent FORCE
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $@ ./cmd/ripstop

agent: deps
	@$(MAKE) -s -C internal/agent/c CC=$(CC)

# What is missing is installed when we may, and named otherwise.
deps:
	@script/deps build
deps-lint:
	@script/deps build lint
deps-test:
	@script/deps build lint test

demo: bin/ripstop
	@script/demo

test: deps-test bin/ripstop lint test-go test-race test-real test-keys

# internal/run, which takes longest, begins first; beside what else is heavy its epochs get too little time.
test-go:
	$(GO) test -p 3 -timeout 30m ./internal/run ./...

# Our own Go under the race detector. internal/agent/c/ctest and test/ start targets and look at them from outside: no code of ours to race.
# Left out is what starts no goroutine, or is run by others' tests: internal/hook and image by those of internal/run, internal/x86, patch and recipe by those of internal/engine and internal/analyze, pt, perf, race and recover (with several workers) by internal/analyze's, detect by internal/run's; truth is the tests'.
test-race:
	CGO_ENABLED=1 $(GO) test -race -short -p 3 -timeout 30m ./internal/run $$($(GO) list ./internal/... ./cmd/... | grep -v -e /agent/c/ -e '/internal/\(hook\|image\|x86\|pt\|perf\|patch\|race\|recipe\|recover\|detect\|truth\)$$')

test-real:
	RIPSTOP_REAL=1 $(GO) test -count=1 -timeout 30m ./test/real/...

# What needs protection keys, in a machine that has them.
test-keys:
	RIPSTOP_REAL=1 $(GO) test -count=1 -timeout 30m ./test/keys

bench: deps-test bin/ripstop
	$(GO) run ./bench

fuzz: deps-test bin/ripstop
	script/fuzz $(FUZZTIME)

# What is too long for CI.
soak: deps-test bin/ripstop
	script/fuzz 10m
	RIPSTOP_SOAK=1 RIPSTOP_REAL=1 $(GO) test -count=1 -timeout 4h ./...

lint: deps-lint agent
	script/lint

fmt:
	gofmt -w cmd internal

generate:
	$(GO) generate ./...

man: bin/ripstop
	@mkdir -p bin/man
	bin/ripstop man bin/man

# `sudo make install` installs what the user built, as it is: root often has no Go, and would leave files here that the user cannot replace.
install:
	@if [ ! -x bin/ripstop ] || [ -O bin/ripstop ]; then $(MAKE) --no-print-directory bin/ripstop; fi
	script/install bin/ripstop '$(DESTDIR)$(PREFIX)'

uninstall:
	cd '$(DESTDIR)$(PREFIX)' && rm -f bin/ripstop share/man/man1/ripstop.1 share/man/man1/ripstop-*.1 share/bash-completion/completions/ripstop \
		share/zsh/site-functions/_ripstop share/fish/vendor_completions.d/ripstop.fish

clean:
	rm -rf bin $(AGENT) internal/agent/lib/.libripstop.flags internal/agent/c/*.o

FORCE:
