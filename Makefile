# Everything runs from .venv, which the first target that needs it makes. Works with GNU make 3.81.

PYTHON ?= python3
SCALE ?= quick
BIN := .venv/bin
RUN := $(BIN)/python run.py
EXHIBIT = $(BIN)/python -m scripts.reproduce $@ --scale $(SCALE)
READY := .venv/.installed
READY_DEV := .venv/.installed-dev

.PHONY: help demo test lint mutants quick paper report bench data clean

help: ## list the targets
	@sed -nE 's/^([a-z][a-z% -]*):.*## (.*)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(READY) ## DMALA on an RBM of MNIST in a minute or two: numbers, records, figures
	@$(RUN) experiment=rbm_sampling sampler=dmala scale=quick
	@echo "At the paper's scale: $(RUN) experiment=rbm_sampling sampler=dmala"

test: $(READY_DEV) ## run the tests; one thread for each of the two workers
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

lint: $(READY_DEV) ## ruff (rules and format) and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

mutants: $(READY_DEV) ## make small mistakes in the code, one by one, and see tests fail (half an hour)
	@OMP_NUM_THREADS=1 $(BIN)/python -m scripts.mutants

# One rule each: a rule of several patterns would take table3 for made once fig3 is.
fig%: $(READY) ## run what a figure needs, then the report: make fig3 SCALE=paper
	@$(EXHIBIT)
table%: $(READY) ## the same for a table: make table2
	@$(EXHIBIT)
app%: $(READY) ## for an appendix: make appD
	@$(EXHIBIT)
thm%: $(READY) ## for a theorem: make thm6.1
	@$(EXHIBIT)
rates-%: $(READY) ## for a figure of the rates paper: make rates-fig2
	@$(EXHIBIT)

quick paper: $(READY) ## run what is missing of both papers at that scale, then the report; go on after a failure
	@$(BIN)/python -m scripts.reproduce all --scale $@

report: $(READY) ## outputs/report/index.html: what was found, beside the papers
	@$(BIN)/python -m scripts.report

bench: $(READY) ## time every sampler beside a plain reference (minutes; the machine to itself)
	@$(BIN)/python -m scripts.bench --out docs/results/bench.csv

data: $(READY) ## fetch and check every data set; LATTICEWORK_DATA names a folder to look in first
	@$(BIN)/python -m scripts.fetch_data

clean: ## remove .venv, builds and caches; outputs/ and downloaded data stay
	@rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo "Latticework needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is $$($(PYTHON) -V 2>&1): install one of them and name it, as in make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "installing the pinned packages into .venv (once; some minutes)"
	@$(BIN)/python -m pip install -e . -c constraints.txt
	@touch $@

$(READY_DEV): $(READY)
	@$(BIN)/python -m pip install -e ".[dev]" -c constraints.txt
	@touch $@
