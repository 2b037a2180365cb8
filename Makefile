# Every target sets up what it needs in .venv; nothing outside this folder is changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The packages are in place for these files as they are now.
READY := $(VENV)/.ready
# Engines are started one at a time. What starts none is spread over two processes, a file to each, slow ones first; of one
# thread each, as threads that wait for each other on the cores of two processes take several times as long.
SPREAD := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# Bytecode is kept: made anew in each of hundreds of processes it takes longer than many a test.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test selftest soak chaos quick check format clean

setup: $(READY)

$(READY): pyproject.toml deploy/install_engine.py workers/environments/vllm_cpu.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet packaging
	$(BIN)/python deploy/install_engine.py
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: setup ## The main job: the quickstart matrix on a real engine
	$(BIN)/shardproof demo

test: setup ## All tests, those with a real engine included
	$(SPREAD) -m 'not engine' --durations=25
	$(BIN)/pytest -m engine --durations=25

selftest: setup ## The whole catalogue of known faults against the residual check
	$(BIN)/shardproof selftest

soak: setup ## Twenty runs one after the other leave nothing behind
	SOAK_RUNS=20 $(BIN)/pytest tests/e2e/test_without_trace.py

chaos: setup ## Two hundred kills at random over three hundred cells: is anything lost, doubled or left?
	CHAOS_KILLS=200 CHAOS_CELLS=300 $(BIN)/pytest -s tests/chaos

quick: setup ## What starts no engine, asks none and does not wait, on SQLite
	$(SPREAD) -m 'not engine and not slow'

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .shardproof build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
