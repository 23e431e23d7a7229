# Everything here works on a fresh machine with Python 3.11 or newer and nothing else.
#
#   make view     look at attention          make view REGARD_ARGS="--help"   make test     lint and all tests
# but these two:   make kernels  tests of the GPU kernels, compiled and interpreted: no GPU needed   make long
# every family of transformers, examples that train, many kills, the site   make exhaustive  every test with
# all its parameters and many examples: hours   make check    lint and types only   make frontend rebuild the
# viewer's page  (the others do it when frontend/ has changed)   make docs     the documentation's site, in
# site/   make bench    every benchmark, in turn   make tritons  kernels' tests with other releases of Triton
# make tritons TRITONS=3.9.0   make matrix   the lowest and the newest releases of what regard needs   make
# matrix MATRIX="lowest --smoke"   make readme   README and docs against an installed wheel   make readme
# README_ARGS="--borrow README.md"   make clean    remove what make made
#
# Another Python: make test PYTHON=/path/to/python

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
# Fifteen thousand files are installed, of which few are ever imported: those are compiled then, and not all
# of them now.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt
REGARD_ARGS ?=

# A name on the PATH is not yet a Python that runs, so each one is asked; venv and ensurepip because some
# Linux distributions ship Python without them.
PYTHON ?= $(shell for candidate in python3.13 python3.12 python3.11 python3; do \
	if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo $$candidate; break; fi; done)

.PHONY: help view test suite kernels long exhaustive check lint types page chromium frontend docs bench tritons matrix readme clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   //p' Makefile

view: $(VENV)/.installed
	$(BIN)/regard view $(REGARD_ARGS)

# Side by side: packages from PyPI, the page, the system's browser; then the tests. Types take a minute of a
# core, which tests would miss: `make check`.
test:
	@$(MAKE) --no-print-directory --keep-going --jobs=3 page chromium lint suite GOAL=test

# One worker more than there are cores, since some wait for a browser or a program, and each keeps to one
# thread. What programs compile is kept for the next one that a test starts, whatever the environment says. In
# place of the shell, so that a signal for make reaches it.
PYTEST = workers=$$($(BIN)/python -c 'import os; \
		print(1 + len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)))') && \
	exec env OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $$workers

suite: lint chromium $(VENV)/.compiled
	@$(PYTEST)

# What stands apart in tests/conftest.py. Kernels for GPUs: compiled for one that need not be there, and run
# in Triton's interpreter.
kernels: $(VENV)/.installed-test
	@$(PYTEST) tests/engine/triton

# Every file with a test marked `long`; tests/test_project.py holds the list to that.
LONG = tests/claims/test_verdicts.py tests/commands/test_commands.py tests/corpus/test_run.py \
	tests/distributed/test_page.py tests/docs/test_pages.py tests/docs/test_site.py tests/doctor/test_families.py \
	tests/doctor/test_models.py tests/doctor/test_public_habits.py tests/engine/test_compiled.py \
	tests/engine/test_native_build.py tests/examples/test_classic.py tests/examples/test_gallery.py \
	tests/examples/test_senses.py tests/models/test_beyond.py tests/models/test_multimodal.py tests/models/test_parity.py \
	tests/models/test_record.py tests/models/test_wrapped.py \
	tests/viewer/e2e/test_faults.py tests/viewer/e2e/test_long.py tests/viewer/e2e/test_notebook.py \
	tests/viewer/test_serving.py
long: chromium $(VENV)/.installed-test
	@$(PYTEST) -m long $(LONG)

# Everything above, the tests marked `slow`, and the parameters that `share` leaves out.
exhaustive: chromium $(VENV)/.installed-test
	@$(PYTEST) --exhaustive

types: $(VENV)/.installed-test
	$(BIN)/pyright --pythonpath $(BIN)/python

# Where there is a Node the page is built while packages are fetched; an install waits for it, and builds it
# elsewhere.
page:
	@if command -v npm >/dev/null 2>&1; then $(PYTHON) -m building.frontend >/dev/null 2>&1 || true; fi

check: lint types

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m building.api --check
	$(BIN)/python -m building.frontend --lint

# The page is tested in a real browser: the system's, installed where that is allowed. Without one those tests
# are skipped, and say so.
chromium:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
		command -v $$name >/dev/null 2>&1 && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		echo "Installing Chromium for the tests of the page."; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium; } >/dev/null 2>&1 \
			&& exit 0; fi; \
	echo "!! NO CHROMIUM, and it cannot be installed here: THE TESTS OF THE PAGE WILL BE SKIPPED." >&2

frontend: $(VENV)/.installed
	$(BIN)/python -m building.frontend

# The variable silences an advertisement for another program. Strict: a warning ends the build.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "The site is built: open site/index.html. Its search wants a server: python -m http.server -d site"

bench: $(VENV)/.installed
	@set -e; found=; for script in benchmarks/*.py; do \
		[ -e "$$script" ] || continue; found=yes; echo "== $$script"; $(BIN)/python "$$script"; done; \
		[ -n "$$found" ] || echo "No benchmarks yet: benchmarks/ holds no .py file."

# What PyTorch brings along is newer from release to release; these the kernels for Hopper were run on. A
# gigabyte each. The one that constraints.txt names is what `make kernels` has.
TRITONS ?= 3.6.0 3.8.0 3.9.0
tritons: $(VENV)/.installed-test
	@set -e; for release in $(TRITONS); do \
		there=$(VENV)/tritons/$$release; echo "== Triton $$release"; \
		[ -d $$there/triton ] || $(BIN)/python -m pip install --quiet --no-deps --target $$there triton==$$release; \
		PYTHONPATH=$$there $(BIN)/python -m pytest -q -n auto tests/engine/triton; done

# Users have other releases than constraints.txt. An environment each, of gigabytes where pip's torch is the
# GPU build.
MATRIX ?=
matrix: $(VENV)/.created
	$(PIP_INSTALL) --quiet uv
	$(BIN)/python -m building.matrix $(MATRIX)

# What a new user does: a wheel, a fresh environment, every block and command of README and docs.
README_ARGS ?=
readme: $(VENV)/.created
	$(PIP_INSTALL) --quiet uv
	$(BIN)/python -m building.readme $(README_ARGS)

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .hypothesis frontend/node_modules src/regard/viewer/static
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: an install runs again only when what it installs has changed, and never upgrades on its own. An
# install builds the page, so it depends on the page's sources as well.
PAGE := $(shell find frontend -name node_modules -prune -o -type f -print 2>/dev/null) building/frontend.py
$(VENV)/.installed: pyproject.toml constraints.txt $(PAGE) | $(VENV)/.created
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt $(PAGE) | $(VENV)/.created
	$(PIP_INSTALL) -e '.[test]'
	@touch $@

# Whatever tests import is compiled once, and not by every worker for itself.
$(VENV)/.compiled: $(VENV)/.installed-test
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -q >/dev/null 2>&1 || true
	@touch $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt $(PAGE) | $(VENV)/.created
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ]; then \
		echo "regard needs Python 3.11 or newer with venv, and found none on the PATH." >&2; \
		echo "Install one (Debian, Ubuntu: apt install python3 python3-venv), or name one:" >&2; \
		echo "  make $(or $(GOAL),$(MAKECMDGOALS)) PYTHON=/path/to/python" >&2; \
		exit 1; fi
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --quiet --upgrade pip # the one that Python brings may be years old, and takes half as long again
	@touch $@
