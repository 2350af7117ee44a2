# `make demo` and `make test` need Python and a C compiler, and set up the rest.
# Everything is installed into .venv; the package itself is installed in editable
# form, and its C is built anew here whenever a source changed.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# The demo's ranks and micro-batches; what else pytest should be told.
P ?= 4
M ?= 8
PYTEST_ARGS ?=

# The version that the pipelines of pipesched.torch are tested with.
TORCH ?= 2.13.0

SOURCES := $(shell find csrc -name '*.c')
HEADERS := $(shell find csrc -name '*.h')
CORE := $(filter-out csrc/python/%,$(SOURCES))
GLUE := $(filter csrc/python/%,$(SOURCES))
CTESTS := $(patsubst tests/c/%.c,%,$(wildcard tests/c/test_*.c))

C_FLAGS := -std=c11 -Icsrc -Wall -Wextra -Wpedantic -Wconversion -Wshadow \
	-Wstrict-prototypes -Werror

.PHONY: help venv build demo test test-torch test-browser ctest lint sanitize bench sdist-check test-matrix \
	test-freethreaded clean

help:
	@echo "make demo P=4 M=8   compare the schedules on a measured model, draw the fastest"
	@echo "make test           run the tests (PYTEST_ARGS=... to choose)"
	@echo "make test-torch     the tests that train with torch $(TORCH), which it installs"
	@echo "make build          .venv, with the package and its C built in place"
	@echo "make lint           format, warnings as errors in gcc and clang, types, stubs"
	@echo "make test-browser   the HTML pictures in headless Chromium (chromium, chromium-driver)"
	@echo "make ctest          the C tests under valgrind"
	@echo "make sanitize       the Python tests under ASan and UBSan"
	@echo "make bench          speed and memory, as ratios to NumPy"
	@echo "make sdist-check    sdist, wheel from it, install elsewhere, test there"
	@echo "make test-matrix    the tests on every Python here, oldest and newest NumPy"
	@echo "make test-freethreaded  the tests of threads without a GIL, on a Python that it builds"

# ---- environment and build -------------------------------------------------

venv: $(VENV)/.made

$(VENV)/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check "setuptools>=77" "numpy>=2.0"
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e ".[plot,test]"
	@touch $@

build: $(VENV)/.built

$(VENV)/.built: $(VENV)/.made setup.py $(SOURCES) $(HEADERS)
	$(BIN)/python setup.py -q build_ext --inplace
	@$(BIN)/python -m compileall -q pipesched  # as pip does for what it installs: a faster start
	@touch $@

# ---- for people ------------------------------------------------------------

demo: build
	@$(BIN)/python examples/demo.py $(P) $(M)

test: build
	$(BIN)/pytest $(PYTEST_ARGS)

$(VENV)/.torch-$(TORCH): $(VENV)/.made
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e ".[torch]" \
		"torch==$(TORCH)"
	@touch $@

test-torch: build $(VENV)/.torch-$(TORCH)
	$(BIN)/pytest tests/with_torch $(PYTEST_ARGS)

$(VENV)/.browser: $(VENV)/.made
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e ".[browser]"
	@touch $@

test-browser: build $(VENV)/.browser
	$(BIN)/pytest tests/with_browser $(PYTEST_ARGS)

# ---- the C core by itself -----------------------------------------------------

# Every tests/c/test_*.c is a program, linked with the whole core.
CT := build/ctest
CT_CORE := $(CORE:%.c=$(CT)/%.o)
CT_BINS := $(CTESTS:%=$(CT)/%)
CT_WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
VALGRIND ?= valgrind --quiet --leak-check=full --show-leak-kinds=all --error-exitcode=99

$(CT)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) -O1 -g -MMD -c $< -o $@

$(CT_BINS): $(CT)/%: $(CT)/tests/c/%.o $(CT)/tests/c/ctest.o $(CT_CORE)
	$(CC) $(CT_WRAP) $^ -lm -o $@

-include $(shell find $(CT) -name '*.d' 2>/dev/null)

ctest: $(CT_BINS)
	@if nm -u $(CT_CORE) | grep ' _*Py'; then echo "the core uses Python"; exit 1; fi
	@set -e; for test in $(CT_BINS); do echo "$$(basename $$test):"; $(VALGRIND) $$test; done

# ---- rules of the house ---------------------------------------------------------

INCLUDES = $$($(BIN)/python -c 'import numpy, sysconfig; \
	print("-isystem", numpy.get_include(), "-isystem", sysconfig.get_path("include"))')
C_FILES := $(shell find csrc tests/c -name '*.[ch]')

$(VENV)/.lint: $(VENV)/.made
	$(BIN)/pip install -q --disable-pip-version-check -e ".[lint]" --no-build-isolation
	@touch $@

lint: $(VENV)/.lint build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	cppcheck --quiet --std=c11 --enable=warning,style,performance,portability \
		--inline-suppr --suppress=unusedStructMember --error-exitcode=1 -Icsrc \
		-D'Py_BEGIN_ALLOW_THREADS={' -D'Py_END_ALLOW_THREADS=}' \
		$(SOURCES) $(wildcard tests/c/*.c)
	@echo 'gcc and clang: $(C_FLAGS)'; set -e; for cc in gcc clang; do for file in $(SOURCES) $(wildcard tests/c/*.c); do \
		$$cc $(C_FLAGS) $(INCLUDES) -O2 -c $$file -o /dev/null; done; done
	$(BIN)/mypy
	$(BIN)/stubtest --mypy-config-file pyproject.toml pipesched._core

# ---- other ways to build and test it ----------------------------------------------

# A build of its own, before the one in .venv on the path. Leaks are looked for by
# tests/test_leaks.py: to ASan, all that CPython keeps until its end is one.
SAN := build/sanitize
sanitize: build
	PIPESCHED_SANITIZE=1 $(BIN)/python setup.py -q build \
		--build-base $(SAN) --build-lib $(SAN)/lib
	cd $(SAN) && env PYTHONPATH=$(CURDIR)/$(SAN)/lib PYTHONMALLOC=malloc \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
		UBSAN_OPTIONS=print_stacktrace=1 PIPESCHED_PROFILE=sanitize \
		$(CURDIR)/$(BIN)/pytest -q -p no:cacheprovider $(PYTEST_ARGS) $(CURDIR)/tests

sdist-check: build
	.ci/sdist-check $(CURDIR)/$(BIN)/python

test-matrix:
	.ci/test-matrix

test-freethreaded:
	.ci/test-freethreaded

bench: build
	@set -e; for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench; done

clean:
	rm -rf build dist *.egg-info .venv* pipesched/*.so demo_output
