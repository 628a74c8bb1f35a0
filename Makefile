# Everything starts here; all that must be on the machine is Python 3.11 or newer and make.
#
#   make              set up .venv for running a worker
#   make dev          and with all that tests and checks need
#   make quickstart   Kafka, the worker, change events and the Iceberg sink on this machine
#   make demo         the same with a real PostgreSQL and Debezium; `make demo TOUR=1` shows it by itself
#   make test         what continuous integration runs
#   make site         the documentation as web pages
#   make release      all files of a release, in build/release; it uploads nothing

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
comma := ,
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
BENCHMARKS = $(sort $(wildcard tests/benchmarks/bench_*.py))

SLOWEST := --durations=25 --durations-min=10
FAILED := .pytest_cache/failed
AGAIN ?=
SEEDS ?= 100
ROWS ?= 1000000

# bash counts SECONDS by itself and may hand it down: only `make quickstart SECONDS=60` means it, and `make demo` too.
ifeq ($(origin SECONDS),command line)
QUICKSTART_OPTIONS := --seconds $(SECONDS)
endif
DEMO_OPTIONS := $(if $(TOUR),--tour,$(QUICKSTART_OPTIONS))
unexport SECONDS
# Some images of build machines set it: then every process compiles all that it imports, again and again.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: install dev wheel jars archives test lane-of-parts lane-of-commits lane-of-spark lane-of-tables \
  lane-of-workers test-logic test-properties test-parts test-commits test-spark test-tables test-workers \
  test-long long-examples-and-parts long-examples long-parts long-kills \
  long-workers soak simulate faults fuzz lint format docs dashboards site screenshots release \
  quickstart demo bench clean distclean

install: $(STAMP)

dev: $(DEV_STAMP)

EXTRAS := java
# Java starts Kafka and Spark in half the time with archives of their classes. The jars are downloaded for them, which the
# first start would do otherwise. `make ARCHIVES=` leaves both to the first start.
ARCHIVES ?= broker spark
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard native/*/Cargo.toml native/*/src/*.rs)
# Python compiles what is imported when it is imported: compiling everything takes as long as installing it.
# setuptools warns of every editable installation.
PIP_INSTALL = PYTHONWARNINGS=ignore $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile -c constraints.txt

# Rust's compiler and two calls of pip run at once and share no file: Spark, of which pip makes a wheel, and all other
# packages. The last call of pip finds them, installs missing packages, and reports errors. The archives of $(2) are
# recorded meanwhile.
define INSTALL
for crate in native/*; do \
  cargo rustc --quiet --lib --manifest-path $$crate/Cargo.toml --release --crate-type cdylib 2>/dev/null & done; \
$(PIP_INSTALL) pyspark 2>/dev/null & \
$(BIN)/python docker/requirements.py pyproject.toml $(subst $(comma), ,$(1)) | grep -v ^pyspark > $(VENV)/others.txt; \
$(PIP_INSTALL) -r $(VENV)/others.txt 2>/dev/null; \
wait; \
for archive in $(2); do \
  $(BIN)/python -m connect_py.embedded.archives $$archive 2>/dev/null || \
    echo "make: no class archive of $$archive; \`connect-py archives\` records it and reports errors" & done; \
status=0; $(PIP_INSTALL) -e '.[$(1)]' || status=$$?; wait; exit $$status
endef

# A stamp newer than what it was made from means that there is nothing to do.
$(STAMP): $(SOURCES) | $(BIN)/pip
	@echo "make: installing into $(VENV), which takes a few minutes the first time"
	@$(call INSTALL,$(EXTRAS),$(ARCHIVES))
	@touch $@

$(DEV_STAMP): $(SOURCES) | $(BIN)/pip
	@echo "make: installing into $(VENV) with tools for tests, which takes a few minutes the first time"
	@$(call INSTALL,$(EXTRAS)$(comma)dev)
	@touch $(STAMP) $@

# `venv` repairs a half-made folder. The pip of an older Python takes twice the time.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $$($(PYTHON) --version) is too old, 3.11 or newer is needed; try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "make: this Python has no venv or no ensurepip; on Debian and Ubuntu: apt-get install" \
	  "$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --upgrade pip

# A wheel with the native libraries, for this platform and all versions of Python 3, in dist/. It requires a Rust
# compiler; `CONNECT_PY_PURE_WHEEL=1 make wheel` builds a wheel for any platform without the libraries.
wheel: install
	$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

jars: install
	$(BIN)/connect-py jars

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/architecture/prose.py --check
	$(BIN)/python tests/architecture/import_circles.py

# Lint and seven lanes, six at a time on two cores. The four lanes with Spark start first, because they run the longest and
# wait the most: commits to Iceberg tables, other uses of Spark, and whole workers with and without the Iceberg sink. Two
# slots are left for the parts of the worker on a broker, the two lanes that only compute, and lint. More lanes at once make
# tests time out. Failed tests of up to four files of the lanes with processes are repeated at the end, on an idle machine,
# and listed.
test: archives
	@rm -rf $(FAILED) && mkdir -p $(FAILED)
	@$(MAKE) --no-print-directory -j6 lane-of-tables lane-of-workers lane-of-spark lane-of-commits \
	  lane-of-parts test-logic lint test-properties
	@$(BIN)/python tests/second_go.py $$(ls $(FAILED))
	@for tests in $$(ls $(FAILED)); do \
	  $(MAKE) --no-print-directory $$tests AGAIN="--last-failed --last-failed-no-failures none" || exit 1; done

# Java starts Spark in half the time with an archive of its classes, and the tests start Spark many times; not those of
# parts of the worker, which begin at once.
archives: dev
	$(BIN)/python -m connect_py.embedded.archives

lane-of-parts: dev
	@$(MAKE) --no-print-directory test-parts || touch $(FAILED)/test-parts

lane-of-commits:
	@$(MAKE) --no-print-directory test-commits || touch $(FAILED)/test-commits

lane-of-spark:
	@$(MAKE) --no-print-directory test-spark || touch $(FAILED)/test-spark

lane-of-tables:
	@$(MAKE) --no-print-directory test-tables || touch $(FAILED)/test-tables

lane-of-workers:
	@$(MAKE) --no-print-directory test-workers || touch $(FAILED)/test-workers

LANE = @$(BIN)/python tests/lane.py
PYTEST = $(BIN)/pytest -o cache_dir=.pytest_cache/$@

# Some files are where a lane has time for them.
MORE_COMMITS = $(addprefix tests/integration/test_,embedded_broker.py standalone_worker.py)
MORE_TABLES = $(addprefix tests/integration/test_,iceberg_ref_commands.py iceberg_rest_commands.py kafka_security.py) \
  $(wildcard tests/contract/test_transforms_against_*.py)
MORE_PARTS = tests/contract/test_transforms_golden.py
MORE_WORKERS = $(wildcard tests/contract/test_rest_*.py)

test-logic: dev
	$(LANE) logic $(PYTEST) -q $(SLOWEST) -m 'not long' tests/architecture tests/unit tests/fuzz

test-properties: dev
	$(LANE) properties $(PYTEST) -q $(SLOWEST) -m 'not long' \
	  $(filter-out $(MORE_PARTS) $(MORE_TABLES) $(MORE_WORKERS),$(wildcard tests/contract/test_*.py)) tests/property

SPARK = $(wildcard tests/integration/test_iceberg_*.py)
COMMITS = $(wildcard $(addprefix tests/integration/test_iceberg_,cdc_*.py commit_*.py engines_*.py evolution_*.py load.py))

test-parts: dev
	$(LANE) parts $(PYTEST) $(SLOWEST) -m 'not long' $(AGAIN) \
	  $(filter-out $(SPARK) $(MORE_COMMITS) $(MORE_TABLES),$(wildcard tests/integration/test_*.py)) \
	  $(MORE_PARTS)

test-commits: dev
	$(LANE) commits $(PYTEST) $(SLOWEST) -m 'not long' $(AGAIN) $(COMMITS) $(MORE_COMMITS)

test-spark: dev
	$(LANE) spark $(PYTEST) $(SLOWEST) -m 'not long' $(AGAIN) $(filter-out $(COMMITS) $(MORE_TABLES),$(SPARK))

ACCEPTANCE = $(wildcard tests/acceptance/test_*.py)
TABLES = $(wildcard $(addprefix tests/acceptance/test_,changed_keys.py cluster_kills.py corpus_replay.py dead_letter_*.py \
  engines_everywhere.py exactly_once_*.py hostile_records.py offsets_iceberg.py spark_*.py tables_that_*.py uuid_keys.py))

test-tables: dev
	$(LANE) tables $(PYTEST) $(SLOWEST) -m 'not long' $(AGAIN) $(TABLES) $(MORE_TABLES)

test-workers: dev
	$(LANE) workers $(PYTEST) $(SLOWEST) -m 'not long' $(AGAIN) $(filter-out $(TABLES),$(ACCEPTANCE)) $(MORE_WORKERS)

# In three lanes as well, for some hours on two cores.
test-long: archives
	@$(MAKE) --no-print-directory -k -j3 long-examples-and-parts long-kills long-workers

LONG = $(PYTEST) -v -o faulthandler_timeout=0 --durations=0 --durations-min=5 -m 'long and not seeds and not soak'

long-examples-and-parts:
	@$(MAKE) --no-print-directory -k long-examples long-parts

long-examples: dev
	@CONNECT_PY_ALL_EXAMPLES=1 $(BIN)/python tests/lane.py logic $(PYTEST) -q -m 'not long' tests/property \
	  $(wildcard tests/contract/test_transforms_against_*.py)

long-parts: dev
	$(LANE) parts $(LONG) tests/integration tests/property

LONG_KILLS = $(wildcard $(addprefix tests/acceptance/test_,exactly_once_*.py cluster_kills.py earlier_version.py \
  engines_everywhere.py rolling_upgrade.py))

long-kills: dev
	$(LANE) kills $(LONG) $(LONG_KILLS) tests/faults

long-workers: dev
	$(LANE) workers $(LONG) $(filter-out $(LONG_KILLS),$(ACCEPTANCE))

# Changes for ten minutes and more, killed again and again; a million records of each format. Three hours.
soak: archives
	$(PYTEST) -v -o faulthandler_timeout=0 --durations=0 --durations-min=5 -m soak tests/acceptance

# The protocols of tables and of the group through tens of thousands of storms, and rules whose absence shows seldom.
simulate: dev
	$(PYTEST) -v -s -o faulthandler_timeout=0 -m seeds tests/property

# Random faults on a real broker, worker and tables: `make faults SEEDS=300`, or some of them: `make faults SEEDS=120:150`.
faults: dev
	CONNECT_PY_FAULT_SEEDS=$(SEEDS) $(BIN)/pytest -s -o faulthandler_timeout=0 tests/faults

# Hostile schemas and bytes for every converter, in all forms: `make fuzz ROWS=1000000` (of each), `make fuzz TARGET=avro SEED=7`.
# What is found says how to make it again: `make fuzz TARGET=avro SEED=7 CASE=123`.
fuzz: dev
	$(BIN)/python tests/fuzz/fuzz_run.py --rows $(ROWS) $(addprefix --target ,$(TARGET)) $(addprefix --seed ,$(SEED)) $(addprefix --case ,$(CASE))

format: dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install
	$(BIN)/python docs/generate_reference.py

# The Grafana dashboards in monitoring/grafana, from their description in monitoring/dashboards.py.
dashboards: install
	$(BIN)/python monitoring/dashboards.py

# The documentation as web pages, in build/site. A dead link or a page without a place in mkdocs.yml fails.
site: install
	$(PIP_INSTALL) -e '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "make: open build/site/index.html, or serve it: $(BIN)/mkdocs serve"

# The pictures of the worker's page in the documentation, made by its tests.
screenshots: dev
	CONNECT_PY_SCREENSHOTS=docs/images $(PYTEST) tests/acceptance/test_page_views.py

# Wheels, source distribution, documentation, chart and image as far as their tools are here, with sizes and checksums.
# The version is that of pyproject.toml and of the newest section of CHANGELOG.md. Nothing is uploaded.
release: site
	$(PIP_INSTALL) -e '.[release]'
	$(BIN)/python tools/release.py

quickstart: install
	$(BIN)/connect-py quickstart $(QUICKSTART_OPTIONS)

demo: install
	$(BIN)/connect-py demo $(DEMO_OPTIONS)

# A short form of every benchmark, then one table of all figures; docs/benchmarks.md names the long forms.
bench: dev
	@set -e; since=$$(date -u +%Y-%m-%dT%H:%M:%S); \
	  for benchmark in $(BENCHMARKS); do echo "== $$benchmark"; $(BIN)/python $$benchmark; done; \
	  echo "== all"; $(BIN)/python tests/benchmarks/summary.py --since $$since

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
