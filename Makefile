# Needs Python 3.11+, git and make. Everything else is installed into .venv/ and contracts/node_modules/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KEEP ?=

.PHONY: setup demo test check bench bench-peers fmt lock contracts clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

contracts/node_modules/.installed: contracts/package-lock.json | $(VENV)/.installed
	$(BIN)/python -m zoo_compute.devnet.npm ci --prefix contracts --no-audit --no-fund --loglevel=error
	@touch $@

setup: $(VENV)/.installed contracts/node_modules/.installed ## install everything, pinned

demo: setup ## run the main job on real parts, from stake to receipt (KEEP=1 leaves the stack running)
	$(BIN)/zoo-compute demo $(if $(KEEP),--keep)

check: setup ## lint, formatting, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

contracts: setup ## compile the contracts and write the committed artifacts
	$(BIN)/python contracts/build.py --write

test: check ## the whole suite: lint, types, layers, Solidity, Python
	FOUNDRY_PROFILE=ci $(BIN)/python contracts/build.py --test
	$(BIN)/pytest

bench: setup ## list the benchmarks and how to run each
	@sed -n '1,400p' benchmarks/README.md

bench-peers: ## install the peers that benchmarks compare with, each into an environment of its own in .peers/
	@set -e; for list in benchmarks/peers/*.txt; do \
	  peer=.peers/$$(basename $$list .txt); test -x $$peer/bin/python || $(PYTHON) -m venv $$peer; \
	  $$peer/bin/python -m pip install --quiet --disable-pip-version-check -r $$list; done

fmt: setup ## format and sort imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup ## resolve pyproject.toml into requirements.lock (versions only)
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --upgrade --strip-extras --extra dev --no-annotate --no-header --allow-unsafe \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links -o requirements.lock pyproject.toml
	sed -i 's/^torch==\([0-9.]*\)+.*/torch==\1/' requirements.lock

clean: ## remove what was installed and built here
	-test -x $(BIN)/zoo-compute && $(BIN)/zoo-compute devnet down
	rm -rf $(VENV) .peers .devnet contracts/node_modules contracts/out contracts/cache .mypy_cache .ruff_cache .pytest_cache
