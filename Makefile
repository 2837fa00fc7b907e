# `make demo` runs the main job, `make test` passes the tests; each makes its own environment first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test landing promises test-all test-slow conformance services matrix lint types unit docs format clean lock

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
JARS := .venv/.jars
SERVERS := .venv/.servers
COVERAGE := $(CURDIR)/build/coverage
# --strict-skips in CI: a skip that tests/suite/skips.py does not name is a failure.
STRICT ?=
# `.ci/run` measures no coverage.
COVERED ?= --cov --cov-report=

# The environment is this checkout's own, whatever shell it is started from.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV SPARK_HOME SPARK_CONF_DIR SPARK_REMOTE PYSPARK_PYTHON \
	PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS PYTEST_ADDOPTS HELIOS_PROFILE PYTHONDONTWRITEBYTECODE
WITH_JAVA = JAVA_HOME=$$(scripts/java.sh --install); export JAVA_HOME;

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' $(MAKEFILE_LIST)

$(READY): requirements-dev.lock pyproject.toml
	@PYTHON=$(PYTHON) scripts/venv.sh
	@touch $@

# The jars, and the class archive with which every JVM of the tests starts faster.
$(JARS): $(READY)
	@$(WITH_JAVA) $(BIN)/helios jars >/dev/null
	@touch $@

# Those that start within a minute; MinIO and GCS are built from source (4 minutes, once). Tests of a server that cannot
# be had are skipped, and say why.
$(SERVERS): $(READY) $(wildcard tests/services/*.py)
	@if $(WITH_JAVA) $(BIN)/python -m tests.services install minio rest kafka hive nessie moto postgres cluster azurite gcs; then touch $@; fi

demo: $(READY) ## Runs the example on real data, and counts its rows with PyIceberg
	@$(WITH_JAVA) $(BIN)/python examples/demo.py

# Marks choose (tests/suite/marks.py): `test`, `test-all` and `test-slow` together are all tests, and no test is in two.
test: lint types $(JARS) ## Lint, types, all unit tests, and each promise on Spark: minutes, and no server
	@$(WITH_JAVA) COVERAGE_FILE="$(COVERAGE)/test" $(BIN)/pytest -m "short" -n 2 --session-timeout=2400 $(STRICT) \
		--durations=25 --durations-min=5 $(COVERED)

landing: $(JARS) $(SERVERS) ## What a change is landed with, beside `make test`: each mode, failure, kind and server once
	@$(WITH_JAVA) $(BIN)/pytest -m "landing and not short" -n 2 --session-timeout=2400 $(STRICT) \
		--durations=25 --durations-min=10

# pytest prints the coverage of both runs, then its own summary, last.
test-all: $(JARS) $(SERVERS) ## All other tests, on real servers too, and the coverage of both runs
	@scripts/coverage.sh "$(COVERAGE)"
	@$(WITH_JAVA) COVERAGE_FILE="$(COVERAGE)/all" $(BIN)/pytest -m "not short and (landing or not slow)" -n 2 $(STRICT) \
		--durations=25 --durations-min=10 --cov --cov-append --cov-report=term --cov-fail-under=90

test-slow: $(JARS) ## Tests of minutes each, the cases that `test-all` only samples, and every catalog of `make services`
	@$(WITH_JAVA) $(BIN)/pytest -m "slow and not landing and not short" -n 2 $(STRICT) --durations=25 --durations-min=10

conformance: $(READY) ## Every write mode through every failure
	@$(WITH_JAVA) $(BIN)/pytest tests/conformance

services: $(READY) ## Builds and fetches the real servers of the tests, once; NAMES="minio rest" only those
	@$(WITH_JAVA) $(BIN)/python -m tests.services install $(NAMES)

matrix: services ## Every promise on every catalog and storage, and the table of it in the docs
	@$(WITH_JAVA) $(BIN)/pytest tests/matrix -n 2 --matrix-table docs/matrix.md

lint: $(READY) ## ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY) ## mypy --strict
	@$(BIN)/mypy

promises: $(READY) ## Which tests show each promise, in each run
	@$(BIN)/pytest --collect-only --quiet --quiet --promises | sed -n '/^|/,$$p'

unit: $(READY) ## The tests that need no JVM
	@$(BIN)/pytest -m "unit and not slow"

docs: $(READY) ## Builds the documentation into site/
	@$(BIN)/mkdocs build --strict --quiet

format: $(READY) ## Mends what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: ## Pins the development environment anew (needs uv)
	uv pip compile pyproject.toml --extra dev --extra docs --python-version 3.11 --universal --upgrade \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header --no-config \
		--quiet --output-file requirements-dev.lock

clean: ## Removes the environment and everything that was built
	rm -rf .venv .nox .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
