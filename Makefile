# The front door. What a target does is in tools/; what is compiled and how is in meson.build.
#
#   make               build/belljar (needs what `tools/setup build` installs)
#   make run           set up, build, serve on 127.0.0.1:8000
#   make check         set up, build and run everything that CI runs
#   make lint unit kernel e2e zygote hostile docker vm clients conformance asan valgrind hardening     parts of it
#   make fuzz          fuzz each parser for FUZZ_SECONDS (600)
#   make bench         measure start, memory, requests a second, sandboxes and Python in them
#   make format        lay out the C and Python files
#   make install       PREFIX=/usr/local, DESTDIR= respected
#   make clean

PREFIX ?= /usr/local
LISTEN ?= 127.0.0.1:8000
FUZZ_SECONDS ?= 600
# `make check` sets this: warnings stop CI, but not a user with a newer compiler.
WERROR ?= false

# ONLY: these tests of a stage, as pytest or Meson names them.
python = .cache/venv/bin/python
pytest = env BELLJAR_BIN=$(CURDIR)/$(1)/belljar \
	FIXTURE_BIN=$(CURDIR)/$(1)/tests/conformance/conformance-server \
	$(python) -m pytest --junitxml=$(1)/junit/$(if $(ONLY),again/)$(notdir $(2)).xml $(or $(ONLY),$(2))
unit = meson test -C $(1) --no-rebuild --print-errorlogs $(if $(ONLY),--logbase again $(ONLY))

all:
	@tools/build build -Dwerror=$(WERROR) -- belljar

# MADE: tools/check has seen to it, to "programs" or to "all".
setup: programs runtime

programs:
	@[ -n "$(MADE)" ] || tools/setup test

runtime: programs
	@[ "$(MADE)" = all ] || tools/runtime >/dev/null

run:
	@tools/setup run
	@$(MAKE) --no-print-directory all
	@tools/runtime >/dev/null
	@exec build/belljar serve --http $(LISTEN) --runtime $(CURDIR)/.cache/runtime

check:
	@tools/check

# ---- parts of the check ------------------------------------------------------------------------

tests: programs
	@[ "$(MADE)" = all ] || tools/build build -Dwerror=$(WERROR) -Dtests=enabled

tests-asan: programs
	@[ "$(MADE)" = all ] || CC=clang tools/build build-asan -Dwerror=true -Dtests=enabled -Db_lundef=false \
		-Db_sanitize=address,undefined

lint: tests tests-asan
	@tools/lint

unit: tests
	@$(call unit,build)

valgrind: tests
	@$(call unit,build) --setup valgrind --suite unit

# Less what is about the zygote, a stage of its own, so that the rows of tools/check take as long as each other.
e2e: tests runtime
	@$(call pytest,build,tests/e2e) --ignore=tests/e2e/zygote

zygote: tests runtime
	@$(call pytest,build,tests/e2e/zygote)

kernel: tests runtime
	@$(call pytest,build,tests/kernel)

hostile: tests runtime
	@$(call pytest,build,tests/hostile)

docker: tests runtime
	@$(call pytest,build,tests/docker)

vm: tests
	@$(call pytest,build,tests/vm) --timeout 600

clients: tests runtime
	@$(call pytest,build,tests/clients)

conformance: tests
	@$(python) tests/conformance/run build/tests/conformance/conformance-server build/belljar

asan: asan-unit asan-e2e

asan-unit: tests-asan
	@tools/sanitized build-asan $(call unit,build-asan)

asan-e2e: tests-asan runtime
	@tools/sanitized build-asan $(call pytest,build-asan,tests/e2e) -m "not python_only and not large"

hardening: tests
	@tools/check-hardening build/belljar

fuzz: programs
	@CC=clang tools/build build-fuzz -Dwerror=true -Dfuzz=true -Db_lundef=false \
		-Db_sanitize=address,undefined -- fuzzers
	@tools/fuzz $(FUZZ_SECONDS)

bench: tests runtime
	@tools/setup bench
	@$(python) bench/run

# ---- the rest ----------------------------------------------------------------------------------

format: programs
	@tools/lint --format

install: all
	@meson setup --reconfigure build -Dprefix=$(PREFIX) >/dev/null
	@meson install -C build --no-rebuild

clean:
	rm -rf build build-*

.PHONY: all setup programs runtime run check tests tests-asan lint unit valgrind kernel e2e zygote hostile docker vm clients conformance asan asan-unit asan-e2e \
	hardening fuzz bench format install clean
