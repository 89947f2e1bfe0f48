# `make demo` and `make test` do everything from a fresh clone: see README.md.
.PHONY: demo test setup lint bench clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

demo: setup
	$(BIN)/coalmine demo

test: setup lint
	$(BIN)/pytest -n 2 -q

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: setup
	$(BIN)/python -m benchmarks

setup: $(READY)

# torch first and pinned, so that nothing that depends on it pulls a build for hardware that is not there.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[torch,transformers,lightning,endpoints,index,figures,dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) coalmine-demo .mypy_cache .ruff_cache
