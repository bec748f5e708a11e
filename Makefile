# What a person types here: make build, make check, make test, make lint. `make test` is also
# what .ci/run does.
NPM      := internal/npmtest
FUZZTIME := 20s
# The race detector on all that is Go. SQLite here is C translated into Go: its memory is not
# Go's, so there is nothing to find in it, and with the detector in it the tests take three times the CPU.
RACE     := -race $(foreach at,modernc.org/sqlite/lib modernc.org/libc/... modernc.org/memory,-gcflags=$(at)=-race=false)
APT      := $(shell command -v gcc >/dev/null || echo gcc libc6-dev) $(shell command -v systemd-analyze >/dev/null || echo systemd) $(shell test -x /bin/kill || echo procps) $(shell command -v pg_virtualenv >/dev/null || echo postgresql)

.PHONY: build check test test-deps test-long test-postgres lint bench fuzz attack

build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o runnerd ./cmd/runnerd

# What to run after each edit: no race detector, nothing to install, none of the
# tests that start the whole program.
check:
	go vet ./...
	go test $$(go list ./... | grep -v -e /cmd/ -e /internal/attack -e /internal/conformance -e /internal/npmtest)

test: test-deps
	go vet ./...
	CGO_ENABLED=1 go test $(RACE) -timeout 25m ./...
	go test ./internal/attack
	$(MAKE) --no-print-directory test-postgres

# Both databases on a PostgreSQL server of its own, which ends with the tests.
test-postgres:
	pg_virtualenv -o fsync=off -s sh -ec 'createdb main; createdb rules; \
		at="postgres://$$PGUSER:$$PGPASSWORD@$$PGHOST:$$PGPORT"; \
		go test ./sqldb -args -postgres "$$at/main?sslmode=disable"; \
		go test ./db -args -postgres "$$at/main?sslmode=disable"; \
		go test ./taskpolicy -args -postgres "$$at/rules?sslmode=disable"'

# What tests need besides Go and Node: a C compiler for the race detector,
# systemd-analyze and kill for the unit files, PostgreSQL, the npm programs.
test-deps: $(NPM)/node_modules/.package-lock.json
ifneq ($(strip $(APT)),)
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "install first: $(strip $(APT))" >&2; exit 1; }
	apt-get -q update
	DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install $(APT)
endif

$(NPM)/node_modules/.package-lock.json: $(NPM)/package-lock.json
	npm ci --prefix $(NPM) --no-audit --no-fund
	@touch $@

# Longer sweeps of the packages that define the -long flag.
test-long: test-deps
	CGO_ENABLED=1 go test $(RACE) -timeout 60m ./scheduler -args -long

lint:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "gofmt -w $$bad" >&2; exit 1; }
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	@! command -v golangci-lint >/dev/null || golangci-lint run

# The daemon as it runs, in one table, then its parts one by one.
bench:
	go run ./internal/bench
	go test -run '^$$' -bench . -benchmem ./...

# What comes of each scripted attack: utility without and with it, and its success,
# which must be 0 for all that policy forbids.
attack:
	go test -C internal/attack -count=1 -run '^TestScenarios$$' -args -table

# Each fuzz target in turn, FUZZTIME each.
fuzz:
	@grep -roH --null --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . | tr '\0' ' ' | \
	while read -r file _ name; do \
		echo "$$name in $$(dirname $$file)"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$(dirname $$file)" || exit 1; \
	done
