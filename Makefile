# Each target makes its own environment on first use. Needs Python 3.10 or later, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow test-nightly test-all test-fleet test-fleet-nightly test-compiled test-lowest lint pins bench bench-compiled \
	bench-accuracy dashboards docs format clean help

help:
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(STAMP): pyproject.toml requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade uv
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --constraint requirements-dev.txt --editable '.[dev]'
	touch $@

demo: $(STAMP) ## four scripted agents under real instrumentation: recovered, stopped, and two left alone
	$(BIN)/trajectory-guard demo

# Processes that run tests side by side. Three on two cores: some tests wait for others' processes.
JOBS ?= 3
# The stream worker has an environment and a target of its own.
PYTEST := $(BIN)/python -m pytest --numprocesses=$(JOBS) --ignore=tests/fleet
# Without bytecode on disk every process that a test starts would compile all its imports again.
unexport PYTHONDONTWRITEBYTECODE

test: $(STAMP) ## the tests, without the slow ones
	$(PYTEST) --dist=worksteal -m "not slow"

# A module is run by one process, for its fixtures; those that take longest begin (tests/conftest.py).
test-slow: $(STAMP) ## fault matrix, real instrumentations, Prometheus
	$(PYTEST) --dist=loadfile --no-loadscope-reorder -m "slow and not nightly"

test-nightly: $(STAMP) ## what takes longest, ten times the sizes, property tests with four times the examples; as each night
	FAULTS=full $(PYTEST) --dist=loadfile --no-loadscope-reorder -m "slow or hypothesis" \
		--hypothesis-profile=thorough

test-all: test test-slow ## both

# The stream worker needs another pydantic than the one that is pinned.
FLEET := .venv-fleet
$(FLEET)/.installed: pyproject.toml requirements-dev.txt
	test -x $(FLEET)/bin/python || $(PYTHON) -m venv $(FLEET)
	$(FLEET)/bin/python -m pip install --quiet --upgrade uv
	grep -v '^pydantic' requirements-dev.txt > $(FLEET)/constraints.txt
	$(FLEET)/bin/python -m uv pip install --quiet --python $(FLEET)/bin/python --constraint $(FLEET)/constraints.txt \
		--editable '.[dev,fleet]'
	touch $@

# Faults wait more than they work: four of them side by side, each with topics of its own on a broker that they share.
FLEET_JOBS ?= 4
test-fleet: $(FLEET)/.installed ## the stream worker and its faults, on a real Kafka (Java 17 and Maven): some minutes
	$(FLEET)/bin/python -m pytest --numprocesses=$(FLEET_JOBS) --dist=load --maxschedchunk=1 --durations=20 -m "not nightly" \
		tests/fleet

test-fleet-nightly: $(FLEET)/.installed ## more faults of the stream worker; three brokers, one killed, one restarted; as each night
	$(FLEET)/bin/python -m pytest --numprocesses=$(FLEET_JOBS) --dist=load --maxschedchunk=1 --durations=0 -m nightly tests/fleet
	$(FLEET)/bin/python -m pytest --durations=0 tests/fleet/three_brokers.py

# The compiled build is installed as a wheel, in an environment of its own: extension modules in the source folders would
# take precedence over edited sources.
COMPILED := .venv-compiled
$(COMPILED)/.installed: pyproject.toml requirements-dev.txt hatch_build.py $(shell find processor -name '*.py')
	test -x $(COMPILED)/bin/python || $(PYTHON) -m venv $(COMPILED)
	$(COMPILED)/bin/python -m pip install --quiet --upgrade uv
	TRAJECTORY_GUARD_COMPILE=1 $(COMPILED)/bin/python -m uv pip install --quiet --python $(COMPILED)/bin/python \
		--constraint requirements-dev.txt --build-constraint requirements-dev.txt \
		--reinstall-package trajectory-guard '.[dev,bench]'
	touch $@

test-compiled: $(COMPILED)/.installed ## the engine's tests and those of equal verdicts on the compiled build (C compiler)
	$(COMPILED)/bin/python -m pytest --numprocesses=$(JOBS) --dist=worksteal -m "not slow" tests/test_compiled.py tests/core \
		tests/dialects tests/collector/test_same_verdicts.py

# The lowest versions that pyproject.toml allows to users; what only tests need is as low as these permit.
LOWEST := .venv-lowest
$(LOWEST)/.installed: pyproject.toml
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade uv
	$(LOWEST)/bin/python -m uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
		--editable '.[cli,collector,langfuse,langgraph,otlp,prices,report]' 'cryptography>=43' 'hypothesis>=6.100' \
		'langchain-anthropic>=1.0' 'langchain-google-genai>=4.0' 'langchain-openai>=1.0' 'langgraph-checkpoint-sqlite>=3.0' \
		'langgraph-supervisor>=0.0.31' 'langgraph-swarm>=0.1' 'openinference-instrumentation-langchain>=0.1.60' \
		'opentelemetry-exporter-otlp-proto-grpc>=1.30' 'pytest>=8.2' 'pytest-asyncio>=0.24' 'pytest-xdist>=3.6'
	touch $@

# Their attributes hold maps, or nothing, which an application cannot set with the lowest SDK.
SAME := tests/collector/test_same_verdicts.py::test_captures_are_evaluated_as_in_process
NOT_IN_LOWEST := --deselect '$(SAME)[conventions-java__main]' --deselect '$(SAME)[spring-ai__main]'
test-lowest: $(LOWEST)/.installed ## engine, dialects, gates and collector on the lowest supported versions of all packages
	$(LOWEST)/bin/python -m pytest --numprocesses=$(JOBS) --dist=worksteal -m "not slow and not newest" \
		$(NOT_IN_LOWEST) tests/core tests/dialects tests/gates tests/collector tests/cli tests/spending tests/test_*.py

lint: $(STAMP) ## ruff, formatting and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A pin without a marker for one Python would leave the others without an environment.
PYTHONS := 3.10 3.13
pins: $(STAMP) ## whether the pinned packages install on the oldest and the newest Python
	@for version in $(PYTHONS); do $(BIN)/python -m uv pip compile --quiet --no-header --no-annotate --python-version $$version \
		--constraint requirements-dev.txt --extra dev pyproject.toml > /dev/null || exit 1; done

format: $(STAMP) ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dashboards: $(STAMP) ## write Grafana's dashboards and all alert rules from dashboards/generator
	$(BIN)/python -m dashboards.generator

docs: $(STAMP) ## write the tables of keys, metrics and attributes into the pages, from the code
	$(BIN)/python -m tests.docs_tables

$(VENV)/.bench: $(STAMP)
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --constraint requirements-dev.txt --editable '.[dev,bench]'
	touch $@

# The stream worker is measured where Kafka can run.
bench: $(VENV)/.bench $(if $(shell command -v java),$(FLEET)/.installed) ## speed and memory, beside the peers, in one run
	$(BIN)/python -m tests.bench

bench-compiled: $(VENV)/.bench $(COMPILED)/.installed ## speed of the engine and of a tool span: pure Python, then compiled
	$(BIN)/python -m tests.bench --only engine --only spans
	$(COMPILED)/bin/python -m tests.bench --only engine --only spans

bench-accuracy: $(VENV)/.bench ## how well loops are found, beside the peers; DATA=folder for all runs instead of the sample
	$(BIN)/python -m tests.bench.accuracy $(if $(DATA),--data $(DATA))

clean:
	rm -rf $(VENV) $(FLEET) $(COMPILED) $(LOWEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis
