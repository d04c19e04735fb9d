# Short names for the commands of README.md and CONTRIBUTING.md.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench figures

demo: .venv
	$(BIN)/projnorm report

test: .venv
	$(BIN)/pytest

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv
	$(BIN)/python benchmarks/bench_linear.py
	$(BIN)/python benchmarks/bench_toy.py
	$(BIN)/python benchmarks/bench_ntk.py
	$(BIN)/python benchmarks/bench_deep.py

figures: .venv
	$(BIN)/projnorm figures --full

.venv: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch .venv
