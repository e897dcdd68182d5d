# Needs Python 3.11+, git and make. Everything else is installed into .venv/ and contracts/node_modules/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KEEP ?=
JOB ?=
# Processes of tests; each takes up to 1 GB.
JOBS ?= 3
# A run of the tests starts hundreds of Python processes: each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# The slowest first: they run two at a time.
CHECKS := check-types check-dead-code check-prose check-imports check-lint check-format

.PHONY: setup demo test test-long test-kubo check $(CHECKS) compiled solidity hooks screenshots bench bench-peers fmt lock contracts clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m training_gym.warm_up
	@touch $@

contracts/node_modules/.installed: contracts/package-lock.json | $(VENV)/.installed
	$(BIN)/python -m zoo_compute.devnet.npm ci --prefix contracts --no-audit --no-fund --loglevel=error
	@touch $@

setup: $(VENV)/.installed contracts/node_modules/.installed ## install everything, pinned

demo: setup ## run the main job on real parts, from stake to receipt (JOB=finetune adds a chat adapter, JOB=processes has a node of two; KEEP=1 leaves the stack running)
	$(BIN)/zoo-compute demo $(if $(JOB),--job $(JOB)) $(if $(KEEP),--keep)

check: setup ## lint, formatting, types, import layers, prose, dead code; two at a time
	@$(MAKE) --no-print-directory --keep-going --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) $(CHECKS)

check-lint:
	$(BIN)/ruff check .
check-format:
	$(BIN)/ruff format --check .
check-types:
	$(BIN)/mypy
check-imports:
	$(BIN)/lint-imports
check-prose:
	$(BIN)/python -m tools.prose
check-dead-code:
	$(BIN)/vulture

hooks: setup ## run `make check` before each commit (pre-commit)
	$(BIN)/pre-commit install

contracts: setup ## compile the contracts and write the committed artifacts
	$(BIN)/python contracts/build.py --write

PYTEST = $(BIN)/pytest $(if $(filter-out 1,$(JOBS)),-n $(JOBS))

compiled: $(VENV)/.installed
	@$(BIN)/python -m training_gym.warm_up # so that no two processes compile the same loop

solidity: setup
	FOUNDRY_PROFILE=ci $(BIN)/python contracts/build.py --test

test: setup ## what a change must pass: lint, types, layers, Solidity, Python (JOBS=1 one test after the other)
	@$(MAKE) --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) solidity $(CHECKS) compiled
	$(PYTEST) -m "not long"

test-long: setup compiled ## the rest: kills of whole stacks, demonstrations, benchmarks, mutants, many cases
	FOUNDRY_PROFILE=long $(BIN)/python contracts/build.py --test
	$(BIN)/python contracts/mutate.py --sample 12
	ZOO_TEST_PROFILE=long $(PYTEST) -m long

PEERS := .peers

test-kubo: setup $(PEERS)/js-ipfs/.installed ## the storage adapter's tests against js-ipfs, a real IPFS daemon (installing takes minutes)
	ZOO_TEST_JSIPFS=$(CURDIR)/$(PEERS)/js-ipfs $(BIN)/pytest tests/integration/storage/test_storage_adapter.py

$(PEERS)/js-ipfs/.installed: | $(VENV)/.installed
	mkdir -p $(PEERS)/js-ipfs
	$(BIN)/python -m zoo_compute.devnet.npm install --prefix $(PEERS)/js-ipfs --no-audit --no-fund --loglevel=error ipfs@0.66.1
	@touch $@

bench-peers: $(PEERS)/hivemind/.installed $(PEERS)/torchft/.installed $(PEERS)/trl/.installed ## install what benchmarks compare with, each in an environment of its own

$(PEERS)/%/.installed: benchmarks/peers/%.txt
	$(PYTHON) -m venv $(PEERS)/$*
	$(PEERS)/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

screenshots: setup ## write pictures of each page of the console into build/screenshots
	$(BIN)/python -m benchmarks.console.screenshots build/screenshots

bench: setup ## list the benchmarks and how to run each
	@grep -oE '^## .*|`[^`]*(python -m benchmarks|make demo)[^`]*`' benchmarks/README.md | uniq

fmt: setup ## format and sort imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup ## resolve pyproject.toml into requirements.lock (versions only)
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --upgrade --strip-extras --extra dev --extra otel --no-annotate --no-header --allow-unsafe \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links -o requirements.lock pyproject.toml
	sed -i 's/^torch==\([0-9.]*\)+.*/torch==\1/' requirements.lock

clean: ## remove what was installed and built here
	-test -x $(BIN)/zoo-compute && $(BIN)/zoo-compute devnet down
	rm -rf $(VENV) $(PEERS) .devnet contracts/node_modules contracts/out contracts/cache .mypy_cache .ruff_cache .pytest_cache
