# Two commands matter: `make serve` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV   ?= .venv
PORT   ?= 8888
DATA   ?= .fourfold
CONFIG ?= configs/local.yaml

ACCEL := $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
BIN   := $(VENV)/bin
STAMP := $(VENV)/.stamp

.PHONY: serve test check bench format clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP)-serve: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(ACCEL)]'
	@touch $@

$(STAMP)-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(ACCEL),test]'
	@touch $@ $(STAMP)-serve

$(STAMP)-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(ACCEL),test,dev]'
	@touch $@ $(STAMP)-test $(STAMP)-serve

serve: $(STAMP)-serve  ## run the server on this machine: PORT=, DATA=, CONFIG=
	exec $(BIN)/fourfold serve --port $(PORT) --data $(DATA) --config $(CONFIG)

test: $(STAMP)-test  ## every test that can run here
	$(BIN)/python -m pytest -m 'not gpu and not bench'

check: $(STAMP)-dev  ## format, lint, types and the fast tests: run before every commit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m unit

format: $(STAMP)-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)-test  ## BENCH=quality|latency|rerank|embed|keyword|vectors|timex|graph|batcher
	$(BIN)/fourfold bench $(BENCH)

clean:
	rm -rf $(VENV) build *.egg-info
