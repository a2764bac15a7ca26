# Everything a fresh machine needs: Python 3.11+ and make.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Two processes, each with whole files: what a file makes once is made once. The slow stage measures, and runs alone.
TWO    := -n 2 --dist loadfile

.PHONY: setup demo test slow lint types layers wheel clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(BIN)/pip install -q -c constraints.txt -e '.[test,lint]'
	touch $@

demo: setup  ## train a small GPT, kill it twice, prove that nothing was lost (under 3 minutes)
	$(BIN)/hinan demo

test: setup  ## the everyday suite (under 5 minutes on 2 cores)
	$(BIN)/python -m pytest $(TWO)

slow: setup  ## the slower stages
	$(BIN)/python -m pytest -m slow --timeout=900

lint: setup
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

wheel: setup  ## the wheel alone passes the everyday suite: no file of src/ is on the path
	rm -rf dist .wheel-venv && $(BIN)/pip wheel -q --no-deps -w dist .
	$(BIN)/python -m venv .wheel-venv
	.wheel-venv/bin/pip install -q -c constraints.txt "$$(ls dist/hinan-*.whl)[test]"
	cp -r tests bench docs pyproject.toml *.md .wheel-venv/
	cd .wheel-venv && bin/python -m pytest -q -p no:cacheprovider $(TWO)

clean:
	rm -rf $(VENV) .wheel-venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
