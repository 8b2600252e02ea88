# `make run` and `make test` set up what they need, once, in .venv.

PYTHON ?= python3
BIN := .venv/bin
PARALLEL := --numprocesses auto --maxprocesses 8 --dist worksteal

.PHONY: run test test-fast sanitize setup lint format docs benchmark clean

run: setup  ## the main job: PINs on Cartpole swing-up, with a live display
	$(BIN)/explore run gin/pins_cartpole.gin

test: setup  ## all tests, the learning ones included
	$(BIN)/pytest $(PARALLEL)

test-fast: setup  ## the quick ones of tests/unit
	$(BIN)/pytest $(PARALLEL) -m "not (learning or process or fuzz or slow)"

sanitize: setup  ## the tests of the kernels, compiled so that wrong addresses and undefined behaviour end them
	EXPLORE_KERNELS=portable \
	EXPLORE_KERNEL_FLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all" \
	ASAN_OPTIONS=detect_leaks=0 \
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	$(BIN)/pytest -m "not slow" tests/unit/test_native_[!lv]*.py tests/fuzz/test_fuzz_native.py

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## the documentation as a site, in build/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

benchmark: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[benchmark]'
	for script in speed jax_scan hyperagent boot_dqn tabular recipes lifting startup memory; do \
	    $(BIN)/python benchmarks/$$script.py || exit; \
	done

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache
