# One word, one command. Every target first sets up what it needs; see scripts/.

.DEFAULT_GOAL := help
.PHONY: help run demo test lint fix bench soak cluster faults clean
.DELETE_ON_ERROR:

PYTHON := .venv/bin/python
# Each stamp is younger than everything that decides what is installed.
RUN_READY := .venv/.run-ready
DEV_READY := .venv/.dev-ready
JAVA_READY := .tools/.java-ready
CLIENTS_READY := .tools/.ready
CONNECT_READY := .tools/connect/.ready
OLDEST_READY := .tools/oldest/.ready
DUCKDB_READY := .tools/duckdb/.ready
BROWSER_READY := .tools/.browser-ready
POSTGRES_READY := .tools/.postgres-ready
COUNTER_READY := .tools/.counter-ready
CALLERS_READY := .tools/.callers-ready
# Java's classes for Spark; with them and without its slower compiler Spark starts sooner. Java then
# keeps little room for compiled code, unless it is asked for; and too little for Spark's classes, which
# makes it look for garbage. Spark starts a process for each folder that it makes, 80 in a batch.
CLASSES := .tools/spark.jsa
QUICK_JAVA := -XX:SharedArchiveFile=$(CURDIR)/$(CLASSES) -XX:TieredStopAtLevel=1 \
	-XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m -XX:+UseSerialGC \
	-Djdk.lang.Process.launchMechanism=VFORK
PYTEST := $(PYTHON) -m pytest
# Python keeps what it compiles, whatever the caller's setting: tests start it many hundred times.
export PYTHONDONTWRITEBYTECODE :=
# Loading pyarrow starts threads for algebra, which spin for a while and have nothing to do.
export OPENBLAS_NUM_THREADS := 1

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(RUN_READY) $(JAVA_READY) ## start server and pipeline; options go in ARGS="--port 9000"
	@$(PYTHON) -m courier up $(ARGS)

demo: $(RUN_READY) $(JAVA_READY) ## see all of it in two minutes; leaves build/demo to look at
	@$(PYTHON) scripts/demo.py $(ARGS)

test: $(DEV_READY) ## lint, then every test, the fast ones first
	@# Two cores are not kept busy by one or two of these.
	@$(MAKE) --no-print-directory -j 3 lint $(CLIENTS_READY) $(CONNECT_READY) $(OLDEST_READY) \
		$(DUCKDB_READY) $(CLASSES) $(BROWSER_READY) $(POSTGRES_READY) $(COUNTER_READY) \
		$(CALLERS_READY)
	@# A test waits for its server much of the time: three of them keep two cores busy. Slow ones
	@# wait even longer. Of the lake's, each worker has a Spark that its tests share: a third would
	@# slow down the other two.
	@# Neighbours share what takes long to make, a server or a lake. So they stay together, until a
	@# worker has nothing left to do and takes from another's list; but no lake is made twice.
	$(PYTEST) --dist worksteal -n 3 -m "not slow and not spark and not quiet"
	$(PYTEST) --dist worksteal -n 5 -m "slow and not spark"
	$(PYTEST) -m quiet
	JAVA_TOOL_OPTIONS="$(QUICK_JAVA)" $(PYTEST) --dist loadfile -n 2 tests/lake

lint: $(DEV_READY) ## check style and types of source, tests and bench
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy

fix: $(DEV_READY) ## format, and repair what can be repaired by machine
	$(PYTHON) -m ruff format
	$(PYTHON) -m ruff check --fix

bench: $(DEV_READY) $(JAVA_READY) ## measure, next to other brokers where they can be installed
	@scripts/rivals
	@scripts/counter || true
	$(PYTHON) -m bench $(ARGS)

soak: $(DEV_READY) $(JAVA_READY) $(POSTGRES_READY) ## the long version of the kill loops and of the random histories
	KILLS=200 MODEL_EXAMPLES=2000 IMAGES=5000 SETTINGS_CHANGES=1000 PAUSE_SECONDS=60 \
		STEP=1 $(PYTHON) -m pytest --timeout 7200 tests/faults tests/model tests/attack/every
	SERVERS=two $(PYTHON) -m pytest -n 2 tests/wire
	STORE=postgres $(PYTHON) -m pytest -n 2 tests/console
	@scripts/cluster
	$(PYTHON) -m tests.cluster --rounds 20
	@# Enough for every point of the lake at which something is killed.
	KILLS=60 $(PYTHON) -m pytest tests/lake/test_pipeline_kill.py tests/lake/test_source_kill.py \
		tests/lake/test_replay.py

cluster: $(DEV_READY) $(JAVA_READY) $(POSTGRES_READY) ## a cluster on this machine: traffic, kills, and what came of it
	@scripts/cluster
	$(PYTHON) -m tests.cluster $(ARGS)

faults: $(DEV_READY) ## plant mistakes in a copy of the source, and see that tests notice each
	$(PYTHON) -m tests.planted $(ARGS)

clean: ## remove what the other targets made; courier-data stays
	rm -rf .venv .tools build dist src/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +

$(RUN_READY): pyproject.toml scripts/packages
	@scripts/packages run
	@touch $@

$(DEV_READY): pyproject.toml scripts/packages
	@scripts/packages dev
	@touch $@ $(RUN_READY)

$(JAVA_READY): scripts/java
	@scripts/java
	@mkdir -p $(@D) && touch $@

$(POSTGRES_READY): scripts/postgres
	@scripts/postgres
	@mkdir -p $(@D) && touch $@

$(COUNTER_READY): scripts/counter
	@scripts/counter
	@mkdir -p $(@D) && touch $@

$(CALLERS_READY): scripts/callers
	@scripts/callers
	@mkdir -p $(@D) && touch $@

$(BROWSER_READY): scripts/browser
	@scripts/browser
	@mkdir -p $(@D) && touch $@

$(CLASSES): $(DEV_READY) $(JAVA_READY) tests/archive.py
	@$(PYTHON) -m tests.archive $@

$(CONNECT_READY): pyproject.toml scripts/packages $(DEV_READY)
	@scripts/packages connect
	@touch $@

$(OLDEST_READY): pyproject.toml scripts/packages $(DEV_READY)
	@scripts/packages oldest
	@touch $@

$(DUCKDB_READY): scripts/packages $(DEV_READY)
	@scripts/packages duckdb
	@touch $@

$(CLIENTS_READY): tests/outside/package.json scripts/clients $(DEV_READY)
	@scripts/clients
	@touch $@
