# Everything a person or a CI does with this checkout. Each target says what it does.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := examples/logs
DATA ?= ../shared/data/loghub
SOURCES := $(shell find stream_dedup -name '*.pyx') setup.py pyproject.toml

.PHONY: help setup demo test test-helm lint bench bench-batch bench-methods bench-redis soak-redis bench-worker chaos quality docs clean

help:
	@echo "make setup     a virtual environment in $(VENV), with the native kernel built"
	@echo "make demo      de-duplicate real logs with the embedded engine and show what was merged"
	@echo "make test      set up, check the style and run all tests"
	@echo "make test-helm check the Helm chart with helm and kubeconform, built from source (needs Go)"
	@echo "make lint      check style, types and imports"
	@echo "make bench     measure speed and memory beside the peers"
	@echo "make bench-batch   measure find-all beside the C++ library (ARGS='--only 1')"
	@echo "make bench-methods measure simhash, minhash and exact match (DATA=folder of labelled logs)"
	@echo "make bench-redis   measure the index over Redis beside the peers (ARGS='--only A,B')"
	@echo "make soak-redis    run EVENTS events through CLUSTERS clusters in Redis, watching its memory"
	@echo "make bench-worker  measure the worker beside a bare copy of the topic (ARGS='--only A')"
	@echo "make chaos     break workers, Kafka and Redis CYCLES times (SEED=, GUARANTEE=both); check all"
	@echo "make quality   measure grouping quality beside the peers (DATA=folder of labelled logs)"
	@echo "make docs      write the generated parts of docs/ again"
	@echo "make clean     remove what the other targets made"

setup: $(VENV)/.ready

$(VENV)/.ready: $(SOURCES)
	@echo "== setup: $(VENV) with stream-dedup and what its tests need"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: $(PYTHON) is older than 3.11; name a newer one: make setup PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip setuptools wheel
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/python $(DEMO)/demo.py

test: lint
	@echo "== test: everything, with coverage"
	@$(BIN)/python -m coverage run -m pytest
	@$(BIN)/python -m coverage report

test-helm: setup
	@echo "== test: the Helm chart; the first time helm is built, which takes minutes"
	@$(BIN)/python -m pytest -m helm tests/deploy

lint: setup
	@echo "== lint: style, types and imports"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: setup
	@echo "== bench: speed and memory, beside the peers"
	@$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@$(BIN)/python -m benchmarks.speed

bench-batch: setup
	@echo "== bench-batch: whole files of fingerprints, beside the C++ library"
	@$(BIN)/python -m benchmarks.batch $(ARGS)

bench-redis: setup
	@echo "== bench-redis: the index over Redis, beside the peers"
	@$(BIN)/python -m pip install --quiet --editable '.[bench,redis]'
	@$(BIN)/python -m benchmarks.redis_index --data $(DATA) $(ARGS)

bench-worker: setup
	@echo "== bench-worker: the worker beside a bare copy of the same topic"
	@$(BIN)/python -m pip install --quiet --editable '.[bench,worker]'
	@$(BIN)/python -m benchmarks.worker $(ARGS)

EVENTS ?= 2000000
CLUSTERS ?= 50000

soak-redis: setup
	@echo "== soak-redis: $(EVENTS) events, at most $(CLUSTERS) clusters"
	@$(BIN)/python -m benchmarks.redis_soak --events $(EVENTS) --clusters $(CLUSTERS)

CYCLES ?= 22
SEED ?=
GUARANTEE ?= both

chaos: setup
	@echo "== chaos: $(CYCLES) faults, guarantee: $(GUARANTEE)"
	@$(BIN)/python -m tests.faults.chaos --cycles $(CYCLES) --seed '$(SEED)' --guarantee $(GUARANTEE)

quality: setup
	@echo "== quality: grouping of labelled logs, beside the peers"
	@$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@$(BIN)/python -m benchmarks.quality --data $(DATA)

bench-methods: setup
	@echo "== bench-methods: simhash, minhash and exact match on labelled logs"
	@$(BIN)/python -m pip install --quiet --editable '.[bench,redis]'
	@$(BIN)/python -m benchmarks.methods --data $(DATA) --redis

docs: setup
	@echo "== docs: the generated parts"
	@$(BIN)/python -m docs.generate

clean:
	@echo "== clean: what the other targets made"
	@rm -rf $(VENV) build dist .bench .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@rm -rf *.egg-info .import_linter_cache .services
	@find stream_dedup -name '*.so' -delete -o -name '*.c' -delete
	@find . -name __pycache__ -prune -exec rm -rf {} +
