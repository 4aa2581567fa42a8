# Everything a person or a CI does with this checkout. Each target says what it does.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := examples/logs
DATA ?= ../shared/data/loghub
SOURCES := $(shell find stream_dedup -name '*.pyx' -o -name '*.pxd') setup.py pyproject.toml

.PHONY: help setup demo test test-slow test-all coverage test-helm test-docker lint bench bench-batch bench-methods bench-redis soak-redis bench-worker bench-new bench-words bench-spark bench-text bench-ui chaos chaos-rules fuzz quality quality-text docs screenshots site man dist sbom audit clean

help:
	@echo "make setup     a virtual environment in $(VENV), with the native kernel built"
	@echo "make demo      de-duplicate real logs with the embedded engine and show what was merged"
	@echo "make test      set up, check the style, run the fast tests and a smoke test on real services"
	@echo "make test-slow run the tests of integration, faults, deployment files and examples"
	@echo "make test-all  both"
	@echo "make coverage  run all these tests once more, and count the lines and branches they reach"
	@echo "make test-docker   build the image, run Compose and the smoke tests in containers (needs Go)"
	@echo "make test-helm check the Helm chart with helm and kubeconform, built from source (needs Go)"
	@echo "make lint      check style, types and imports"
	@echo "make bench     measure speed and memory beside the peers"
	@echo "make bench-batch   measure find-all beside the C++ library (ARGS='--only 1')"
	@echo "make bench-methods measure simhash, minhash and exact match (DATA=folder of labelled logs)"
	@echo "make bench-redis   measure the index over Redis beside the peers (ARGS='--only A,B')"
	@echo "make soak-redis    run EVENTS events through CLUSTERS clusters in Redis, watching its memory"
	@echo "make bench-worker  measure the worker beside a bare copy of the topic (ARGS='--only A')"
	@echo "make bench-ui  measure the web application over 100,000 clusters, in Chromium"
	@echo "make bench-words   group lines in which several words vary, beside Drain3"
	@echo "make bench-new     measure what new events cost, beside another checkout (ARGS='--beside ../other')"
	@echo "make bench-spark   measure stored events on Spark beside MLlib (ARGS='--lines 1000000,10000000')"
	@echo "make chaos     break workers, Kafka and Redis CYCLES times (SEED=, GUARANTEE=both); check all"
	@echo "make chaos-rules   a million events while rules change and workers are killed (GUARANTEE=both)"
	@echo "make fuzz      fuzz the native extensions under sanitisers for SECONDS (needs gcc)"
	@echo "make bench-text    measure what texts cost: the kernel, and an index in memory as it grows"
	@echo "make quality   measure grouping quality beside other log parsers (DATA=folder of labelled logs)"
	@echo "make quality-text  measure near-duplicate texts beside other tools (DATA=folder of labelled texts)"
	@echo "make docs      write the generated parts of docs/ again"
	@echo "make screenshots   take the pictures in docs/images of real runs again (installs Chromium and pngquant)"
	@echo "make site      build the documentation site into build/site, and fail on any warning"
	@echo "make man       write the manual pages alone, docs/man"
	@echo "make dist      build the sdist and this platform's wheel into dist, and check both"
	@echo "make sbom      write what 'stream-dedup[worker]' installs, as CycloneDX: dist/sbom.cdx.json"
	@echo "make audit     look for known vulnerabilities in all that is installed (ARGS='-s osv': not PyPI's)"
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

# The tiers. Tests, of which many wait, are spread over three processes; a file stays in one, with the
# servers it shares.
# By default xdist begins with the files that have the most tests. Beyond the fast tier the slowest
# files have few tests, and one process would wait for them at the end: so they run in their order.
# Of a property the fast tier tries a third of the usual examples; HYPOTHESIS_PROFILE=usual, as in
# .ci/run, tries all.
JOBS ?= 3
FAST := tests/unit tests/contract tests/golden tests/docs tests/smoke stream_dedup benchmarks
SLOW := tests/integration tests/faults tests/deploy tests/examples tests/services
MARKED = $(shell grep -rl 'pytest.mark.slow' --include='*.py' $(FAST))
test: export HYPOTHESIS_PROFILE ?= quick

test: lint
	@echo "== test: unit, contract, golden, docs; one worker on a real Kafka and Redis"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile \
		-m 'not slow and not helm and not docker' $(FAST)

test-all: test test-slow

test-slow: setup
	@echo "== test: integration, faults, deployment files, examples, and what is marked slow"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(SLOW)
	@$(BIN)/python -m pytest -n $(JOBS) -m slow $(MARKED)

coverage: lint
	@echo "== coverage: all tests but containers and charts"
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder \
		$(SLOW) $(FAST)
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report

test-helm: setup
	@echo "== test: the Helm chart; the first time helm is built, which takes minutes"
	@$(BIN)/python -m pytest -m helm tests/deploy

# Starts an engine as root. On a machine that cannot pull images the first run takes seven minutes,
# later ones two.
test-docker: setup
	@echo "== test: image, Compose stack, smoke tests; the first time Compose and base images are made"
	@$(BIN)/python -m pytest -m docker -s tests/smoke tests/deploy

lint: setup
	@echo "== lint: style, types and imports"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: setup
	@echo "== bench: speed and memory, beside the peers"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m benchmarks.speed

bench-batch: setup
	@echo "== bench-batch: whole files of fingerprints, beside the C++ library"
	@$(BIN)/python -m benchmarks.batch $(ARGS)

bench-redis: setup
	@echo "== bench-redis: the index over Redis, beside the peers"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m benchmarks.redis_index --data $(DATA) $(ARGS)

bench-worker: setup
	@echo "== bench-worker: the worker beside a bare copy of the same topic"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m benchmarks.worker $(ARGS)

bench-new: setup
	@echo "== bench-new: processor time of events that open clusters"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m benchmarks.new_streams $(ARGS)

bench-words: setup
	@echo "== bench-words: lines in which several words vary, beside Drain3"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m benchmarks.varying_words $(ARGS)

bench-spark: setup
	@echo "== bench-spark: stored events on Spark, beside MLlib and datasketch"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m benchmarks.spark $(ARGS)

bench-text: setup
	@echo "== bench-text: the kernel, and the index in memory, on texts"
	@$(BIN)/python -m benchmarks.text_speed $(ARGS)

bench-ui: setup
	@echo "== bench-ui: the web application over many clusters, in Chromium"
	@$(BIN)/python -m benchmarks.ui $(ARGS)

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
	@$(BIN)/python -m tests.faults.chaos --cycles $(CYCLES) --seed '$(SEED)' --guarantee $(GUARANTEE) $(ARGS)

SECONDS ?= 60

chaos-rules: setup
	@echo "== chaos-rules: rules changed every second while workers are killed, guarantee: $(GUARANTEE)"
	@$(BIN)/python -m tests.faults.rules_round --guarantee $(GUARANTEE) $(ARGS)

fuzz: setup
	@echo "== fuzz: the native extensions under sanitisers, $(SECONDS) s"
	@$(BIN)/python -m pip install --quiet --group fuzz
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

quality: setup
	@echo "== quality: grouping of labelled logs, beside the peers"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m pip install --quiet --no-deps logparser3==1.0.4
	@$(BIN)/python -m benchmarks.quality --data $(DATA) $(ARGS)

quality-text: setup
	@echo "== quality-text: near-duplicate texts, beside other tools"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m benchmarks.quality_text --data $(DATA) $(ARGS)

bench-methods: setup
	@echo "== bench-methods: simhash, minhash and exact match on labelled logs"
	@$(BIN)/python -m pip install --quiet --group bench
	@$(BIN)/python -m benchmarks.methods --data $(DATA) --redis

docs: setup
	@echo "== docs: the generated parts"
	@$(BIN)/python -m docs.generate

screenshots: setup
	@echo "== screenshots: a worker under load, for two minutes"
	@$(BIN)/python -m docs.screenshots

site: setup
	@echo "== site: the documentation, strict"
	@$(BIN)/python -m docs.website

man: setup
	@echo "== man: the manual pages"
	@$(BIN)/python -m docs.man

# What releases are made and checked with, in an environment of its own.
TOOLS := build/tools/bin
TOOLS_NEEDED := build==1.6.1 cyclonedx-bom==7.5.0 pip-audit==2.10.1 twine==7.0.0
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' stream_dedup/_version.py)
WHEEL = $$(ls dist/stream_dedup-$(VERSION)-*.whl)

build/tools/.ready: Makefile
	@$(PYTHON) -m venv --clear build/tools
	@$(TOOLS)/pip install --quiet --upgrade pip $(TOOLS_NEEDED)
	@touch $@

dist: build/tools/.ready
	@echo "== dist: the sdist, and a wheel built from it"
	@rm -f dist/stream_dedup-*
	@$(TOOLS)/pyproject-build --outdir dist . > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@$(TOOLS)/twine --no-color check --strict dist/stream_dedup-*

# Only setuptools reads the version, so it is written into the copy that the SBOM is made from.
sbom: dist
	@echo "== sbom: dist/sbom.cdx.json"
	@$(PYTHON) -m venv --clear --without-pip build/sbom
	@$(TOOLS)/pip --python build/sbom/bin/python install --quiet "$(WHEEL)[worker]"
	@sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > build/sbom/pyproject.toml
	@$(TOOLS)/cyclonedx-py environment --pyproject build/sbom/pyproject.toml --validate \
		--output-reproducible --output-format JSON -o dist/sbom.cdx.json build/sbom/bin/python

# --strict: what cannot be looked up is a failure, not a pass.
audit: dist
	@echo "== audit: worker, faust, otel"
	@$(PYTHON) -m venv --clear --without-pip build/audit
	@$(TOOLS)/pip --python build/audit/bin/python install --quiet "$(WHEEL)[worker,faust,otel]"
	@$(TOOLS)/pip --python build/audit/bin/python freeze --exclude stream-dedup > build/audit.txt
	@$(TOOLS)/pip-audit --strict --progress-spinner off --no-deps --disable-pip -r build/audit.txt $(ARGS)

clean:
	@echo "== clean: what the other targets made"
	@rm -rf $(VENV) build dist .bench .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@rm -rf *.egg-info .import_linter_cache .services
	@find stream_dedup -name '*.so' -delete -o -name '*.c' -delete
	@find . -name __pycache__ -prune -exec rm -rf {} +
