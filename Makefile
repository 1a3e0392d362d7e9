# The only entry to everything: CI calls the same targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
export OMP_NUM_THREADS ?= 1

TASK ?= pendulum

.PHONY: help setup demo label test check slow bench lock clean

help:
	@echo "make demo    teach an agent from comparisons in a few minutes, and write a report"
	@echo "make label   teach a task yourself, on a page (TASK=backflip-hopper for the paper's back-flip)"
	@echo "make test    all tests but the slow ones"
	@echo "make check   lint, types and formatting"
	@echo "make slow    learning runs of minutes"
	@echo "make bench   speed and memory, as ratios within one run"

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"prefrl needs Python 3.11 or newer, but $(PYTHON) is {v[0]}.{v[1]}; type: make PYTHON=python3.11 $(MAKECMDGOALS)" or 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: setup
	$(BIN)/python -m experiments.demo

label: setup
	$(BIN)/prefrl run $(TASK) --human

test: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow and not bench"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: setup
	$(BIN)/python -m pytest -m slow

bench: setup
	$(BIN)/python -m pytest -m bench -s -n 0

# Pins what is installed now; the torch wheel may be any build of the version pinned.
lock: setup
	$(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
