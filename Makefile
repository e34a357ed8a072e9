# make setup | demo | test | test-more | test-all | fuzz | shell | snapshots | translations | lint | bench | docs | clean
PYTHON ?= python3
BIN := .venv/bin
# How many tests run in parallel. A single test can start eight processes and take 2 GB, hence the low default.
TESTERS ?= 2

.PHONY: setup demo test test-more test-all fuzz shell snapshots translations lint bench docs clean
.DEFAULT_GOAL := setup

setup: .venv/.installed

# The virtual environment; rebuilt only if pyproject.toml or constraints.txt change.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "gonogo needs Python 3.10 or newer: make PYTHON=python3.11 setup")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[rehearse,dev,examples]'
	$(BIN)/python -m compileall -q src/gonogo  # so that the first start is as fast as later ones
	$(BIN)/python -m gonogo hazards --format markdown >/dev/null  # fills gonogo's cache of the hazards' pages
	touch $@

demo: setup
	$(BIN)/python examples/demo.py

# The tests, without those marked slow or very_slow.
test: setup
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal -m 'not slow and not very_slow'

CI_HAS_TIME_FOR := slam_omni and not two_faulty or device_map and fixed_is_go or qwen_72b and named or saving or trl_sft or llamafactory_train

# The slow tests, and of the very slow ones those that .ci/run has time for: examples at full size, saving, two frameworks.
test-more: setup
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal -m 'slow and not very_slow'
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal -m very_slow tests/examples/test_scenarios.py \
		tests/virtual/test_saving.py tests/launchers/test_frameworks.py -k '$(CI_HAS_TIME_FOR)'

# All tests. Takes hours; nightly in CI.
test-all: setup
	$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal

# 100,000 damaged inputs, with a new seed each day, then each sample file made large: two hours of CPU time.
fuzz: setup
	$(BIN)/python tests/fuzz/run.py --count 100000
	$(BIN)/python tests/fuzz/run.py --grow

# 100,000 shell scripts, read by gonogo and run by bash, with a new seed each day: 40 minutes of CPU time.
shell: setup
	$(BIN)/python tests/shell/run.py --count 100000

# Rewrites the expected output of hazards and reports. Read the diff before you commit it.
snapshots: setup
	$(BIN)/python tests/snapshots.py
	PYTHONPATH=tests $(BIN)/python tests/report/whole_runs.py

# Gives each text of the source its entry in the Chinese catalogue, and lists those that are still empty.
translations: setup
	$(BIN)/python scripts/translations.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Prints the figures of docs/measured.md.
bench: setup
	$(BIN)/python benchmarks/rehearse.py
	$(BIN)/python benchmarks/diagnose.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/guard.py --turns --models small --steps 2400
	$(BIN)/python benchmarks/guard.py --turns --models mid --steps 320

# Builds the documentation site in both languages, readable offline: site/index.html.
docs: .venv/.docs
	$(BIN)/python scripts/docs_site --output site

.venv/.docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf site .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
