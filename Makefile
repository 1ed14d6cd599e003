# make demo    sets everything up and decides a few bundled instances
# make test    the fast tests;  make test-all  the slow ones too
# make test-everywhere  the fast tests again and again, as other processors, threads and examples would have them
# make lint    format, rules, types
# make bench   timings
# make regression  the verdicts of all bundled properties, then their proofs, written and checked
# make benchmarks FAMILY=acasxu TIMEOUT=60  one family: a folder with an instances.csv, or its name below BENCHMARKS
# make fuzz MINUTES=10 SEED=0  random instances against exact answers; goes on where it stopped (build/fuzz)
# make paper DATA=.../oval_paper OUT=results/paper  the paper's experiments; goes on where it stopped
# make paper-quick DATA=.../oval_paper  a tenth of them
# make gpu-check  what to run first on a machine with a GPU: a report to send (GPU=cuda:1, GPU=standin)
# make docs    the documentation as a site in build/site, every link checked
# make clean   removes what the other targets made
#
# Another interpreter: make PYTHON=python3.12 demo.  Another package index: PIP_ARGS="--index-url ...".

PYTHON ?= python3
PIP_ARGS ?=
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet $(PIP_ARGS)
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.ready-docs

# What `make benchmarks` runs; OUT keeps the results, so the same command goes on after an interruption.
BENCHMARKS ?= benchmarks
FAMILY ?= properties
TIMEOUT ?=
OUT ?= results/$(notdir $(patsubst %/,%,$(FAMILY)))$(addprefix -,$(TIMEOUT))
BATCH_ARGS ?=

.PHONY: help install demo test test-all test-everywhere lint format bench regression benchmarks fuzz paper paper-quick gpu-check docs clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

install: $(READY)

# The last step is for machines on which Python may not keep its bytecode: a run begins 0.7 s sooner with it.
# torch comes first and alone, so that nothing below can choose or exchange it: the constraint makes pip look for the
# torchvision (of onnx2torch) that fits it.
$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)"
	$(BIN)/python -c "import torch; print(f'torch=={torch.__version__}')" > $(VENV)/constraints.txt
	$(PIP) --constraint $(VENV)/constraints.txt -e ".[dev]"
	$(BIN)/python -m compileall -q verifier
	touch $@

demo: $(READY)
	$(BIN)/python scripts/demo.py

# The shapes on signatures are checked where a few tests go through most of the package.  Those that use the fixture
# `unchecked` are left out there.
SHAPED := tests/operators tests/branching tests/search/boxes tests/bounding/test_first_bounds.py \
	tests/bounding/relaxation/test_zonotope.py tests/search/signs/test_root.py tests/search/signs/test_space.py \
	tests/search/test_sharpen.py tests/test_pipeline.py tests/test_properties_verdicts.py

# Tests that run at a time.
WORKERS ?= auto

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS)
	SHAPES=1 $(BIN)/python -m pytest -q -n $(WORKERS) $(SHAPED)

test-all: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) -m ""

# EVERYWHERE="--list" says what this machine can tell apart, EVERYWHERE="--only reordered" chooses.
test-everywhere: $(READY)
	$(BIN)/python scripts/test_everywhere.py $(EVERYWHERE)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python scripts/bench.py

regression: $(READY)
	mkdir -p build
	$(BIN)/python -m verifier batch properties --out build/regression --fresh --expected properties/expected.csv \
		--threads 1 --require decided --junit build/regression.xml
	$(BIN)/python -m verifier batch properties --out build/proved --proofs build/proved/proofs --fresh \
		--expected properties/expected.csv --threads 1 --require decided
	$(BIN)/python -m verifier check --batch build/proved

MINUTES ?= 10
SEED ?= 0

fuzz: $(READY)
	$(BIN)/python scripts/fuzz.py --minutes $(MINUTES) --seed $(SEED)

benchmarks: $(READY)
	@folder="$(FAMILY)"; test -d "$$folder" || folder="$(BENCHMARKS)/$(FAMILY)"; \
	test -d "$$folder" || { echo "there is no folder $(FAMILY), nor $$folder (BENCHMARKS=... says where)" >&2; exit 2; }; \
	expected="$$folder/expected.csv"; test -f "$$expected" || expected=; \
	$(BIN)/python -m verifier batch "$$folder" --out "$(OUT)" $${expected:+--expected "$$expected"} \
		$(if $(TIMEOUT),--timeout $(TIMEOUT)) $(BATCH_ARGS)

# PAPER_ARGS="--only memory" runs one stage, PAPER_ARGS="--jobs 1" one process at a time.
DATA ?=
PAPER_ARGS ?=
paper: OUT := results/paper
paper-quick: OUT := results/paper-quick

paper: $(READY)
	$(BIN)/python scripts/reproduce.py "$(DATA)" --out "$(OUT)" $(PAPER_ARGS)

paper-quick: $(READY)
	$(BIN)/python scripts/reproduce.py "$(DATA)" --out "$(OUT)" --quick $(PAPER_ARGS)

# Which device is checked; `standin` needs no GPU.
GPU ?= cuda

gpu-check: $(READY)
	$(BIN)/python scripts/gpu_check.py --device "$(GPU)" $(GPU_ARGS)

# The tools of the site come when they are asked for first; the constraint keeps torch as it is.
$(DOCS_READY): $(READY)
	$(PIP) --constraint $(VENV)/constraints.txt -e ".[docs]"
	touch $@

# Not --quiet: that would hide the warnings which --strict turns into errors.
docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo build/site/index.html

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
