# make demo    an environment, the package, and the default job: VINE learns a maze on this machine
# make test    lint, types and the fast tests;  make test-slow: what takes longer
# Everything is installed into .venv from the lock files. PYTHON chooses the interpreter (3.11 or 3.12).
# A lock is also given as a constraint: without it, pip before 23.3 holds etils[epath] for another
# package than the etils that is locked, and stops as soon as there is a later one.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
# Compiled programs are kept between runs of the tests.
CACHE = JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.cache/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2
PYTEST = JAX_PLATFORMS=cpu $(CACHE) $(BIN)/python -m pytest
FAST = $(PYTEST) -n 2 --dist loadfile

PYTHON312 = $(shell for p in python3.12 $$HOME/.pyenv/versions/3.12.*/bin/python; do \
  $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null && echo $$p && break; done)

.PHONY: demo test test-slow fast lint lock dist clean

demo: $(VENV)/installed
	$(BIN)/vinerl train

test: $(VENV)/installed-dev lint
	$(FAST)

# The slow tests, and the fast ones under Python 3.12 where there is one.
test-slow: $(VENV)/installed-dev
	$(PYTEST) -m slow -v -rPfEs
	@if [ -n "$(PYTHON312)" ] && [ "$(VENV)" = .venv ]; then \
	  $(MAKE) PYTHON=$(PYTHON312) VENV=.venv312 fast; \
	else echo "no Python 3.12 here: the fast tests ran under one version only"; fi

fast: $(VENV)/installed-dev
	$(FAST)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

$(BIN)/python:
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 12) else "Python 3.11 or 3.12 is needed, this is %d.%d: make PYTHON=python3.11" % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: requirements.lock pyproject.toml | $(BIN)/python
	$(PIP) install -q --require-hashes -r requirements.lock -c requirements.lock
	$(PIP) install -q --no-deps -e .
	touch $@

$(VENV)/installed-dev: requirements-dev.lock pyproject.toml | $(BIN)/python
	$(PIP) install -q --require-hashes -r requirements-dev.lock -c requirements-dev.lock
	$(PIP) install -q --no-deps -e .
	touch $@ $(VENV)/installed

# The versions of MuJoCo and dm-control in constraints.txt simulate as the published benchmark did.
lock:
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  -c constraints.txt pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  -c constraints.txt -c requirements.lock --extra dev pyproject.toml -o requirements-dev.lock

dist: $(VENV)/installed-dev
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) .cache dist
