# `make` and `make help` show what there is; each target's line says what it does.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test hello race image servers benchers test-busy browser lint fmt fuzz lab bench beside profile microbench drill repairs nginx kits example clients check build clean

FUZZTIME ?= 60s
ROWS ?=
BUSY ?= test
SEEDS ?=
VERSION ?= $(shell git describe --tags --dirty 2>/dev/null || sed -n 's/^var version = "\(.*\)"/\1/p' main.go)
# The tools are built once, into Go's build cache.
LINT := go tool -modfile=tools/go.mod golangci-lint

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

run: ## Start the server with embedded stores
	go run .

example: ## Start a small shop that sells through the engine, and buy there once; ONCE=1 ends after that
	@cd examples/shop && go test -count=1 -timeout=0 -run='^TestExample$$' -args -example=$(if $(ONCE),once,stay)

# The folder for temporary files lets other users through: as root, the nodes of a Galera cluster run as the user mysql.
SUITE = TMPDIR=$$(mktemp -d -p "$${TMPDIR:-$(MEMORY)}"); chmod +x "$$TMPDIR"; export TMPDIR; trap 'rm -rf "$$TMPDIR"' EXIT; go run ./test/suite

test: hello servers build/axe.min.js ## Run all tests; they start MariaDB, Redis, RabbitMQ, nginx and Chromium by themselves. PARTS="drill engine ..." runs some
	@$(SUITE) $(PARTS)

hello:
	@echo "All tests, three parts at a time; each package and each row of the drill is shown when it ends."
	@echo "The first run on a machine installs packages and compiles: about twelve minutes on two cores. Later runs take about nine."

race: servers ## Run the packages that start goroutines with the race detector
	@tools/test-servers.sh race
	@$(SUITE) -race $(PARTS)

image: ## Build the image's program as the Dockerfile does, and check it
	cd test/deploy && go test -tags image -run TestBuild -vet=off -count=1 -timeout 30m .

servers:
	@tools/test-servers.sh

benchers:
	@tools/test-servers.sh bench

# The tests start some eighty databases whose data nobody needs after a power cut. They are in memory where there is enough
# of it, and programs may be run from there.
MEMORY := $(shell [[ $$(df --output=avail /dev/shm | tail -n 1) -gt 6000000 && $$(findmnt -no OPTIONS /dev/shm) != *noexec* ]] 2>/dev/null && echo /dev/shm)

# There is a loop for each core. The trap ends them, and each ends by itself when its shell was killed.
test-busy: ## Run the tests, or BUSY=race, while endless loops keep every core busy
	@loops=(); trap 'kill "$${loops[@]}" 2>/dev/null' EXIT; \
	for _ in $$(seq "$$(nproc)"); do while kill -0 $$$$ 2>/dev/null; do :; done & loops+=($$!); done; \
	$(MAKE) --no-print-directory $(BUSY)

# Two windows at a time: with more, the one browser that they are of is too slow for what a page promises.
browser: build/axe.min.js ## Drive the pages in Chromium; build/screenshots shows them in every look
	cd test/browser && go vet ./... && SCREENS=full go test -parallel 2 -count=1 -timeout 20m ./...

# axe-core judges whether a page can be used by everybody. It is fetched for the tests and is no part of the project.
AXE := 4.14.1
build/axe.min.js: | servers
	@mkdir -p build
	@cd build && npm pack --silent axe-core@$(AXE) >/dev/null && tar -xzf axe-core-$(AXE).tgz --strip-components=1 package/axe.min.js && rm axe-core-$(AXE).tgz

lint: ## Check style, and the doors between the packages
	$(LINT) run ./...
	cd test/deploy && go tool -modfile=../../tools/go.mod golangci-lint run ./...
	cd test/fault && go tool -modfile=../../tools/go.mod golangci-lint run ./...
	cd test/browser && go tool -modfile=../../tools/go.mod golangci-lint run ./...
	cd examples/shop && go tool -modfile=../../tools/go.mod golangci-lint run ./...

fmt: ## Format the code
	go tool -modfile=tools/go.mod gofumpt -l -w .

fuzz: ## Run every fuzz target for FUZZTIME (60s) each
	@{ grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . || [[ $$? == 1 ]]; } | \
	sed 's|/[^/]*:func | |' | sort | while read -r dir target; do \
		echo "$$target in $$dir"; \
		go test -C "$$dir" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) . </dev/null; \
	done

lab: ## Run every strategy on the same load; lab-report/report.html shows what each did
	go run . lab

bench: | benchers ## Measure every goal against a bare Gin server: most of an hour, or BENCH_ROWS=regexp (BENCH_KEEP=1 keeps them); writes docs/performance.md
	go test -tags bench -count=1 -timeout 90m -run TestBench -v ./test/bench

beside: | benchers ## Load the engine and that of another revision (REV=...) in turns on one machine: rows as in bench
	rm -rf build/beside && mkdir -p build/beside
	git archive $(REV) | tar -x -C build/beside
	cd build/beside && go build -ldflags='-s -w' -pgo=app/serve.pgo -o ../flashsale-$(REV) .
	rm -rf build/beside
	BENCH_BESIDE="$(CURDIR)/build/flashsale-$(REV)" go test -tags bench -count=1 -timeout 90m -run TestBench -v ./test/bench

drill: ## Break every part under load: half an hour, or ROWS=regexp; writes docs/drill.md. SEEDS=N: N simulated runs too
	cd test/fault && DRILL=full go test -count=1 -timeout 3h -run 'TestDrill/($(ROWS))'
	@if [[ -n "$(SEEDS)" ]]; then cd test/fault && SEEDS=$(SEEDS) go test -count=1 -timeout 0 ./sim; fi

REPEAT ?= 20
repairs: ## Kill the app at each of its steps, REPEAT (20) times, and measure how long the gate stays wrong; writes docs/drill.md
	cd test/fault && REPEAT=$(REPEAT) go test -count=1 -timeout 3h -run 'TestDrill/^13'

nginx: ## Kill an instance behind nginx under 50,000 attempts; make test has a short form
	DRILL=full go test -count=1 -timeout 20m -run TestNginx -v ./test/e2e

kits: build/k6 build/.newman ## Run the kits for testers: ab, Postman's newman and k6; docs/loadtest.md tells how to use them
	go test -tags bench -count=1 -timeout 20m -v ./test/load

# k6 is built, which takes some minutes, and newman fetched once. The folder is hidden, for Go looks into others.
build/k6: test/load/k6/go.mod
	go build -C test/load/k6 -o ../../../build/k6 go.k6.io/k6

NEWMAN := 6.2.2
build/.newman:
	npm install --silent --no-audit --no-fund --no-save --prefix build/.newman.new newman@$(NEWMAN)
	mv build/.newman.new build/.newman

# What is generated is not committed. The Python client is made when it runs.
CLIENT := build/clients/typescript
clients: ## Lint web/openapi.yaml, generate clients from it into build/clients, buy with them, and try what others wrote; docs/integrate.md tells how to use them
	mkdir -p $(CLIENT) build/clients/go
	cp test/clients/*.json test/clients/*.yaml test/clients/*.ts test/clients/*.mjs $(CLIENT)
	npm install --silent --no-audit --no-fund --no-package-lock --prefix $(CLIENT)
	cd $(CLIENT) && npx --no-install spectral lint --fail-severity=warn -r spectral.yaml ../../../web/openapi.yaml
	cd $(CLIENT) && npx --no-install redocly lint --config redocly.yaml ../../../web/openapi.yaml
	cd $(CLIENT) && npx --no-install openapi-typescript ../../../web/openapi.yaml -o schema.d.ts && npx --no-install tsc
	go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -generate types,client -package api -o build/clients/go/api.go web/openapi.yaml
	cd build/clients/go && rm -f go.mod && go mod init client && go mod tidy && go build ./...
	go test -tags bench -count=1 -v ./test/clients

# The profile with which the program is built: the compiler makes faster what it shows as hot.
PROFILE := app/serve.pgo
profile: | benchers ## Profile the engine under purchases, for the next build
	rm -rf build/profiles && mkdir -p build/profiles
	BENCH_PROFILES="$(CURDIR)/build/profiles" BENCH_ROWS='^(sold out.*|accepted, (queued|confirmed|confirmed, 1,000 connections|embedded))$$' \
		BENCH_ROUNDS=2 BENCH_SECONDS=5 go test -tags bench -count=1 -timeout 30m -run TestBench ./test/bench
	go tool pprof -proto build/profiles/*.pprof >$(PROFILE)

microbench: ## Compare Go's benchmarks of every hot step with docs/microbench.txt
	mkdir -p build
	go test -run '^$$' -bench . -benchtime 0.3s -count 6 -benchmem ./lab/trial ./gate ./handler ./internal/metrics ./internal/ranks ./middleware ./model ./repository ./service/auth | tee build/microbench.txt
	go tool -modfile=tools/go.mod benchstat docs/microbench.txt build/microbench.txt

check: lint test image race ## What has to pass before a commit

build: ## Build the static binary bin/flashsale
	CGO_ENABLED=0 go build -trimpath -pgo=$(PROFILE) -tags nomsgpack -ldflags '-s -w -X main.version=$(VERSION)' -o bin/flashsale .

clean: ## Remove what was built; data stays
	rm -rf bin build coverage.out
