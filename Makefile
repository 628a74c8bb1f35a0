# Everything starts here; all that must be on the machine is Python 3.11 or newer and make.
#
#   make              set up .venv
#   make quickstart   Kafka, the worker, change events and the Iceberg sink on this machine
#   make test         what continuous integration runs

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCHMARKS = $(sort $(wildcard tests/benchmarks/bench_*.py))

PARTS := -o cache_dir=.pytest_cache/parts -m 'not long' tests/integration tests/acceptance tests/faults
SEEDS ?= 100

# bash counts SECONDS by itself and may hand it down: only `make quickstart SECONDS=60` means it.
ifeq ($(origin SECONDS),command line)
QUICKSTART_OPTIONS := --seconds $(SECONDS)
endif
unexport SECONDS

.DELETE_ON_ERROR:
.PHONY: install jars test test-logic test-parts test-long faults lint format docs quickstart bench clean distclean

install: $(STAMP)

# A stamp newer than what it was made from means that there is nothing to do. `venv` repairs a half-made folder.
$(STAMP): pyproject.toml constraints.txt native/Cargo.toml $(wildcard native/src/*.rs)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $$($(PYTHON) --version) is too old, 3.11 or newer is needed; try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "make: this Python has no venv or no ensurepip; on Debian and Ubuntu: apt-get install" \
	  "$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[avro-fast,dev]'
	@touch $@

jars: install
	$(BIN)/connect-py jars

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Side by side: tests that compute, and tests that mostly wait for Kafka and Spark. Of the latter, what failed beside the
# others is run once more by itself, and said so: their deadlines are those of a machine that is not overloaded.
test: lint
	@$(MAKE) --no-print-directory -j2 test-logic test-parts

test-logic: install
	$(BIN)/pytest -q -m 'not long' tests/architecture tests/unit tests/contract tests/property

test-parts: install
	$(BIN)/pytest $(PARTS) || { echo "make: once more, by themselves, those that failed"; $(BIN)/pytest $(PARTS) --last-failed --last-failed-no-failures none; }

test-long: install
	$(BIN)/pytest -m long

# Random faults on a real broker, worker and tables: `make faults SEEDS=300`, or some of them: `make faults SEEDS=120:150`.
faults: install
	CONNECT_PY_FAULT_SEEDS=$(SEEDS) $(BIN)/pytest -s tests/faults

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install
	$(BIN)/python docs/generate_reference.py

quickstart: install
	$(BIN)/connect-py quickstart $(QUICKSTART_OPTIONS)

# A short form of every benchmark, then one table of all figures; docs/benchmarks.md names the long forms.
bench: install
	@set -e; since=$$(date -u +%Y-%m-%dT%H:%M:%S); \
	  for benchmark in $(BENCHMARKS); do echo "== $$benchmark"; $(BIN)/python $$benchmark; done; \
	  echo "== all"; $(BIN)/python tests/benchmarks/summary.py --since $$since

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
