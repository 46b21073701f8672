# make demo    the two-minute tour: a real job, a planted fault, the alert   (FAULT=slow|pause|data|none)
# make test    every test
# make lint    ruff, mypy, import-linter
# make setup   .venv with .venv/bin/eacgm; the others begin with it

FAULT ?= slow
BIN := .venv/bin

# Probes need root; where sudo asks for no password (or can ask) it is used, else the demo says what it can do.
SUDO := $(shell [ "$$(id -u)" = 0 ] || { command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; } && echo sudo -E; })

.PHONY: setup demo test lint format lock clean

setup:
	@tools/setup
	@echo "setup: ready; try .venv/bin/eacgm --help"

demo:
	@tools/setup demo
	@$(SUDO) $(BIN)/eacgm demo --fault $(FAULT)

test:
	@tools/setup demo test
	@$(SUDO) tools/tracefs
	@$(SUDO) $(BIN)/python -m pytest

lint:
	@tools/setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format:
	@tools/setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock:
	tools/lock

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
