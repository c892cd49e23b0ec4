# make demo and make test do all their own set-up on a machine with python3 and make; a second call starts at once.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
CORES := $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo smoke test test-slow check docs setup clean

demo: $(VENV)/.core
	$(RUN) -m vitlab demo

smoke: $(VENV)/.dev
	rm -rf build/smoke
	$(RUN) -m vitlab reproduce --all --scale smoke --out build/smoke --device cpu --quiet

test: $(VENV)/.dev
	$(RUN) -m pytest -n $(CORES) -m "not slow"

test-slow: $(VENV)/.dev
	$(RUN) -m pytest -n $(CORES) -m slow

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
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
