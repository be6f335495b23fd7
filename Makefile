# Everything a person does with this repository by hand. Needs make and Python 3.11 or later with its venv module; all
# else is installed into .venv from lock files with hashes. Nothing outside this folder is touched.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

# How many processes share the tests. Tests wait for disks and daemons, so one more than there are cores.
JOBS ?= $(shell $(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')

BENCH ?= startup first_request store chunk_cost turn_growth header_deltas meter bench_dialects bench_rpc turns followers syncs kills

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test coverage check format golden bench lock clean

help: ## Print this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r name text; do printf 'make %-10s %s\n' "$$name" "$$text"; done

demo: .venv/.runtime ## Run a whole session on this repository, offline, and prove each of its requests
	$(BIN)/refold demo

test: .venv/.dev ## Run all tests, beside each other (ARGS="-k name" for some, JOBS=0 for one after the other)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

coverage: .venv/.dev ## Report which branches the tests take (one after the other, nearly three times as slow: not in CI)
	$(BIN)/coverage erase
	$(BIN)/python -m coverage run -m pytest $(ARGS)
	$(BIN)/coverage report

check: .venv/.dev ## Check format, style, types and the direction of imports
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: .venv/.dev ## Lay out the code and apply safe fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

golden: .venv/.dev ## Write golden files and generated documents anew; read the diff before you commit it
	$(BIN)/python -m tests.support.event_examples
	$(BIN)/python -m tests.support.projection_examples
	$(BIN)/python -m tests.support.rpc_examples
	$(BIN)/python -m tests.support.reference_page
	$(BIN)/python -m tests.support.transcripts
	$(BIN)/python -m tests.support.invariants_page

bench: .venv/.dev ## Run the benchmarks and print their figures (BENCH="turns startup" for some)
	@for name in $(BENCH); do echo "== $$name"; $(BIN)/python -m "tests.bench.$$name" || exit 1; done

lock: $(BIN)/uv ## Bring the lock files up to date with pyproject.toml (UPGRADE=1 for newest releases)
	$(COMPILE) $(if $(UPGRADE),--upgrade) --extra build -o requirements/runtime.txt pyproject.toml
	$(COMPILE) $(if $(UPGRADE),--upgrade) --extra build --extra dev -c requirements/runtime.txt -o requirements/dev.txt pyproject.toml

clean: ## Remove what the other targets made
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.made:
	@command -v $(PYTHON) >/dev/null || { echo "there is no $(PYTHON) here; say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "refold needs Python 3.11 or later and $(PYTHON) is $$($(PYTHON) -V 2>&1); say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) lacks the venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.runtime: .venv/.made pyproject.toml requirements/runtime.txt
	$(PIP) install -q --require-hashes -r requirements/runtime.txt
	$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.runtime requirements/dev.txt
	$(PIP) install -q --require-hashes -r requirements/dev.txt
	@touch $@

# The locker comes in the version that the lock file names, so that two people get the same lock.
$(BIN)/uv: .venv/.made
	$(PIP) install -q "$$(sed -n 's/^\(uv==[^ ;]*\).*/\1/p' requirements/dev.txt | grep . || echo uv)"
	@touch $@
