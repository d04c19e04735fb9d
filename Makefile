# Short names for the commands of README.md and CONTRIBUTING.md.
PYTHON ?= python3
BIN := .venv/bin
SITE := site

.PHONY: demo test lint bench figures examples docs

demo: .venv
	$(BIN)/projnorm report

test: .venv
	$(BIN)/pytest -n auto -m "not slow"

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv
	$(BIN)/python -m benchmarks.bench_linear
	$(BIN)/python -m benchmarks.bench_toy
	$(BIN)/python -m benchmarks.bench_ntk
	$(BIN)/python -m benchmarks.bench_deep
	$(BIN)/python -m benchmarks.bench_predict

figures: .venv
	$(BIN)/projnorm figures --full

# Figures and outputs in the gallery of examples.
examples: .venv
	for script in examples/*.py; do $(BIN)/python $$script docs/images > docs/images/$$(basename $$script .py).txt; done

# The site, into $(SITE); warnings are errors, and so is anything that a page loads from another host.
docs: .venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -d $(SITE)

.venv: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch .venv
