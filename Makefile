# Everything a person or CI does with this repository. Bare `make` lists the targets.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN  := bin
BUF  := tools/buf/node_modules/.bin/buf
TOOL := go tool -modfile=tools.mod

# The socket of PostgreSQL's tests; unset, they say in one line that they were not run.
export COMPOZY_TEST_POSTGRES ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## build, start the daemon, register this directory, prove an MCP round trip
	@tools/run.sh $(BIN)/compozy

.PHONY: build
build: ## build bin/compozy and bin/compozyd
	@go build -o $(BIN)/ ./cmd/...

.PHONY: test
test: ## run every test
	@go test ./...

.PHONY: check
check: lint breaking race drift clients agents ## everything that CI runs
	@echo "check: all green"

.PHONY: lint
lint: $(BUF) ## format and lint Go and proto
	@$(TOOL) golangci-lint fmt --diff
	@$(TOOL) golangci-lint run
	@$(BUF) lint
	@$(BUF) format proto --diff --exit-code

.PHONY: breaking
breaking: $(BUF) ## refuse changes that break Host API clients
	@tools/breaking.sh $(BUF)

.PHONY: race
race: ## run every test with the race detector
	@go test -race ./...

.PHONY: drift
drift: generate ## what is generated must be what is committed
	@git diff --exit-code --stat -- gen api docs
	@test -z "$$(git status --porcelain -- gen api docs)" || { git status --short -- gen api docs; exit 1; }

.PHONY: generate
generate: $(BUF) ## write gen/, api/ and docs/ from proto/
	@rm -rf api gen/mcptool
	@$(BUF) generate

.PHONY: golden
golden: ## rewrite golden files from what the code does now
	@go test ./tools/projectgen/... ./internal/config/... ./internal/cli/sessioncmd/... ./internal/transcript/... -update

.PHONY: bench
bench: build ## measure what the documents claim, as ratios within one run
	@go run ./tools/bench

.PHONY: soak
soak: ## kill -9 loops and races, many rounds
	@COMPOZY_SOAK_ROUNDS=$${COMPOZY_SOAK_ROUNDS:-50} go test -count=1 -timeout 60m -run 'Kill|Race' ./...

.PHONY: clients
clients: build ## drive the relay with real MCP clients from npm
	@tools/clients/run.sh $(BIN)/compozy

.PHONY: agents
agents: build ## run real coding agents from npm against a model stub
	@tools/agents/run.sh $(BIN)/compozy

.PHONY: vuln
vuln: ## look for known vulnerabilities (needs the network)
	@$(TOOL) govulncheck ./...

.PHONY: clean
clean: ## remove what was built
	@rm -rf $(BIN) tools/buf/node_modules tools/clients/node_modules tools/agents/node_modules tools/agents/more/node_modules

$(BUF): tools/buf/package-lock.json
	@npm ci --prefix tools/buf --ignore-scripts --no-audit --no-fund --silent
	@touch $(BUF)
