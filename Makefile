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

SOURCES := $(shell find csrc -name '*.c')
HEADERS := $(shell find csrc -name '*.h')
CORE := $(filter-out csrc/python/%,$(SOURCES))
GLUE := $(filter csrc/python/%,$(SOURCES))
CTESTS := $(patsubst tests/c/%.c,%,$(wildcard tests/c/test_*.c))

C_FLAGS := -std=c11 -Icsrc -Wall -Wextra -Wpedantic -Wconversion -Wshadow \
	-Wstrict-prototypes -Werror

.PHONY: help venv build demo test ctest lint sanitize bench sdist-check test-matrix clean

help:
	@echo "make demo P=4 M=8   draw a schedule and count its bubble"
	@echo "make test           run the tests (PYTEST_ARGS=... to choose)"
	@echo "make build          .venv, with the package and its C built in place"
	@echo "make lint           format, warnings as errors in gcc and clang, types, stubs"
	@echo "make ctest          the C tests under valgrind"
	@echo "make sanitize       the Python tests under ASan and UBSan"
	@echo "make bench          speed and memory, as ratios to NumPy"
	@echo "make sdist-check    sdist, wheel from it, install elsewhere, test there"
	@echo "make test-matrix    the tests on every Python here, oldest and newest NumPy"

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
	@touch $@

# ---- for people ------------------------------------------------------------

demo: build
	@$(BIN)/python examples/demo.py $(P) $(M)

test: build
	$(BIN)/pytest $(PYTEST_ARGS)

bench: build
	@$(BIN)/python benchmarks/bench_exercise.py

clean:
	rm -rf build dist *.egg-info .venv* pipesched/*.so demo_output
