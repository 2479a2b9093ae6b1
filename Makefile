# All targets use .venv, which is created when first needed. Works with GNU make 3.81.

PYTHON ?= python3
SCALE ?= quick
BIN := .venv/bin
RUN := $(BIN)/python run.py
EXHIBIT = $(BIN)/python -m latticework.scripts.reproduce $@ --scale $(SCALE)
READY := .venv/.installed
READY_DEV := .venv/.installed-dev
READY_BENCH := .venv/.installed-bench
READY_DOCS := .venv/.installed-docs
READY_RELEASE := .venv/.installed-release

.PHONY: help demo test test-quick test-kernels test-all test-avx2 test-slurm lint docs mutants quick paper report bench references data release packages clean

help: ## list the targets
	@sed -nE 's/^([a-z][a-z0-9% -]*):.*## (.*)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: $(READY) ## DMALA on an RBM of MNIST in a minute or two: numbers, records, figures
	@echo "DMALA samples an RBM of MNIST digits: a minute or two, then a table and two figures"
	@$(RUN) experiment=rbm_sampling sampler=dmala scale=quick
	@echo "At the paper's scale: $(RUN) experiment=rbm_sampling sampler=dmala"
	@echo "For your own commands, activate the environment first: . $(BIN)/activate"

# A worker runs whole files, so that it compiles the kernels and lists the laws of each file once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile
QUICK := -m "not slow and not gpu"
test: $(READY_DEV) ## run the quick tests that an uncommitted change can reach; all of them if there is none
	@changed=$$(PYTHONPATH=src:. $(BIN)/python -m workshop.changed_tests) && $(PYTEST) $(QUICK) $$changed
test-quick: $(READY_DEV) ## run all quick tests; one thread for each of the two workers
	@$(PYTEST) $(QUICK)
KERNELS := $(addprefix tests/test_,kernels.py kernel_rules.py compiled.py compiled_lattice.py same_law.py)
test-kernels: $(READY_DEV) ## run the slow tests of compiled kernels, which compile each of them
	@$(PYTEST) -m "slow and not gpu" $(KERNELS)
test-all: $(READY_DEV) ## run all tests
	@$(PYTEST)

# Limits PyTorch to AVX2, as on a processor without AVX-512. If glibc's checking malloc is available, a
# write outside an allocation aborts the test; otherwise the tests run without this check.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=1
CHECKED := libc_malloc_debug.so.0
NETWORK := tests/test_resnet.py tests/test_ebm_learning.py \
  "tests/test_experiments.py::test_experiment[ebm_learning]" \
  "tests/test_experiments.py::test_experiment[ebm_samples]" \
  "tests/test_experiments.py::test_experiment[ais]"
test-avx2: $(READY_DEV) ## run the tests of the network and of its learning limited to AVX2, with heap checks
	@LD_PRELOAD=$(CHECKED) env true 2>&1 | grep -q . || checked=$(CHECKED); \
	$(AVX2) LD_PRELOAD=$$checked MALLOC_CHECK_=3 MALLOC_PERTURB_=165 $(BIN)/python -m pytest -q -n 2 $(NETWORK)

test-slurm: $(READY_DEV) ## sweeps on a real Slurm of one node, if it is installed (some minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m workshop.slurm

lint: $(READY_DEV) ## ruff (rules and format), mypy, who may import whom
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && PYTHONPATH=src:. $(BIN)/lint-imports --no-logo

docs: $(READY_DOCS) ## build the documentation site in build/site; runs the gallery (a minute or two)
	@OMP_NUM_THREADS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

mutants: $(READY_DEV) ## list small mistakes that no test notices (an hour): make mutants FILES="samplers/gwg.py --each 20"
	@mkdir -p build
	@OMP_NUM_THREADS=1 $(BIN)/python -m workshop.mutants $(FILES) > build/survivors.txt
	@echo "survivors, in build/survivors.txt:" && cat build/survivors.txt

# One rule per pattern: with several patterns in a rule, making fig3 would count as making table3.
fig%: $(READY) ## run the experiments of a figure, then the report: make fig3 SCALE=paper
	@$(EXHIBIT)
table%: $(READY) ## likewise for a table: make table2
	@$(EXHIBIT)
app%: $(READY) ## for an appendix: make appD
	@$(EXHIBIT)
thm%: $(READY) ## for a theorem: make thm6.1
	@$(EXHIBIT)
rates-%: $(READY) ## for a figure of the rates paper: make rates-fig2
	@$(EXHIBIT)
bench%: $(READY) ## for the comparison of samplers: make benchmark, make benchmark-scaling
	@$(EXHIBIT)
learning-%: $(READY) ## for learning with later samplers: make learning-later
	@$(EXHIBIT)
log-%: $(READY) ## for the estimators of log Z: make log-z
	@$(EXHIBIT)

quick paper: $(READY) ## run all missing experiments at that scale, then the report; continue after failures
	@$(BIN)/python -m latticework.scripts.reproduce all --scale $@

report: $(READY) ## write outputs/report/index.html, our results compared with the papers'
	@$(BIN)/python -m latticework.scripts.report

bench: $(READY_BENCH) ## time the samplers against their peers and a measured limit (hours, on an idle machine)
	@$(BIN)/python -m workshop.bench --tables docs/results --threads 1 --ess 2
	@$(BIN)/python -m workshop.first_draws --out docs/results/bench_first_draws.csv

references: $(READY_DEV) ## compute all reference targets anew: cards, draws and their page (some minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m workshop.references

data: $(READY) ## fetch and check every data set; the folder LATTICEWORK_DATA is searched first
	@$(BIN)/python -m latticework.scripts.fetch_data

release: $(READY_RELEASE) ## check the version, build and check sdist and wheel, tag; says how to upload
	@$(BIN)/python -m workshop.release
packages: $(READY_RELEASE) ## likewise, without the tag
	@$(BIN)/python -m workshop.release --no-tag

clean: ## remove .venv, builds and caches; keep outputs/ and downloaded data
	@rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo "Latticework needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is $$($(PYTHON) -V 2>&1): install one of them and name it, as in make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "installing the pinned packages into .venv (once; some minutes)"
	@$(BIN)/python -m pip install --quiet -e . -c constraints.txt
	@touch $@

$(READY_DEV): $(READY)
	@$(BIN)/python -m pip install --quiet -e ".[dev]" -c constraints.txt
	@touch $@

$(READY_BENCH): $(READY)
	@$(BIN)/python -m pip install --quiet -e ".[bench]" -c constraints.txt
	@touch $@

$(READY_RELEASE): $(READY)
	@$(BIN)/python -m pip install --quiet -e ".[release]" -c constraints.txt
	@touch $@

$(READY_DOCS): $(READY)
	@$(BIN)/python -m pip install --quiet -e ".[docs]" -c constraints.txt
	@touch $@
