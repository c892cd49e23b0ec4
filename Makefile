# make demo and make test do all their own set-up on a machine with python3 and make; a second call starts at once.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
CORES := $(shell nproc 2>/dev/null || echo 2)
AXE := .browser/node_modules/axe-core/axe.min.js

.PHONY: axe demo smoke test test-browser test-slow test-full check docs setup clean

demo: $(VENV)/.core
	$(RUN) -m vitlab demo

smoke: $(VENV)/.dev
	rm -rf build/smoke
	$(RUN) -m vitlab reproduce --all --scale smoke --out build/smoke --device cpu --quiet

test: $(VENV)/.dev
	$(RUN) -m pytest -n $(CORES) -m "not slow and not full"

test-slow: $(VENV)/.dev
	$(RUN) -m pytest -n $(CORES) -m slow

# Long checks that CI only samples, for example 32 points of kill -9; -s shows their counts.
test-full: $(VENV)/.dev
	$(RUN) -m pytest -s -m full

# All tests in Chromium, quick and slow.
test-browser: $(VENV)/.dev
	$(MAKE) axe || echo "no axe-core: the tests of accessibility will skip"
	$(RUN) -m pytest -m browser

# axe-core finds violations of accessibility. It needs npm and is used by tests only.
axe: $(AXE)

$(AXE):
	npm install --prefix .browser --no-save --no-package-lock --no-audit --no-fund --ignore-scripts axe-core@4.14.0

check: $(VENV)/.dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/test_layers.py
	$(RUN) -m pytest -q --doctest-modules src/vitlab

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet
	@echo build/site/index.html

setup: $(VENV)/.dev

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(RUN) -m pip install --quiet --editable ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(RUN) -m pip install --quiet --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) .browser build .mypy_cache .pytest_cache .ruff_cache .hypothesis
