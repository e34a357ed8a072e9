# make setup | demo | test | test-more | test-all | fuzz | snapshots | lint | bench | docs
PYTHON ?= python3
BIN := .venv/bin
# Tests side by side: some start eight processes and take two gigabytes, so no more than two by default.
TESTERS ?= 2

.PHONY: setup demo test test-more test-all fuzz snapshots lint bench docs clean
.DEFAULT_GOAL := setup

setup: .venv/.installed

# Made again when what is to be installed changes, and not otherwise.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "gonogo needs Python 3.10 or newer: make PYTHON=python3.11 setup")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[rehearse,dev]'
	$(BIN)/python -m compileall -q src/gonogo  # the first start is as quick as any, also where Python may not write
	$(BIN)/python -m gonogo hazards --format markdown >/dev/null  # builds what later starts read from the cache
	touch $@

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal -m 'not very_slow'

# Of the slowest tests those that CI has time for: the examples at full size and trained, strategies, frameworks.
test-more: setup
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal -m very_slow tests/examples tests/virtual/test_strategies.py \
		tests/virtual/test_memory.py tests/virtual/test_saving.py tests/launchers/test_frameworks.py -k 'not axolotl and not two_nodes'

test-all: setup
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal

# A hundred thousand damaged inputs, others every day: an hour and a half of one processor, on all of them.
fuzz: setup
	$(BIN)/python tests/fuzz/run.py --count 100000

# What hazards find in their cases, written anew: read the difference before it is committed.
snapshots: setup
	$(BIN)/python tests/snapshots.py
	PYTHONPATH=tests $(BIN)/python tests/report/whole_runs.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/rehearse.py
	$(BIN)/python benchmarks/diagnose.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/guard.py --turns --models small --steps 2400
	$(BIN)/python benchmarks/guard.py --turns --models mid --steps 320

# The documents and the hazards' pages as a site in both languages: site/index.html. It needs no network to be read.
docs: .venv/.docs
	$(BIN)/python scripts/docs_site --output site

.venv/.docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf site .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
