# One command sets everything up and trains (`make train`), one sets everything up and tests (`make test`).
# A machine with Python 3.11 and make is enough.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
DOCS := $(VENV)/.docs
# Python compiles what is imported when it is imported first: compiling all of torch would take longer than training.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: help setup tools train test test-all test-browser test-cluster check docs format bench clean

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## Make .venv with srl and its extras: .venv/bin/srl is the command

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e ".[all]"
	touch $(READY)

tools: $(TOOLS)  ## Add the development tools to it

$(TOOLS): $(READY)
	$(INSTALL) -e ".[dev]"
	touch $(TOOLS)

train: setup  ## Train CartPole to its limit, with the live view
	$(BIN)/srl train CartPole-v1 --until-return 475

# Much of a test is waiting for processes to start, so that one more than there are cores is best on two cores.
TEST_PROCESSES ?= 3
# Tests start some hundred processes, each of which would compile torch again if it may not keep its bytecode.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal

test: tools  ## Run the tests
	$(PYTEST) -m "not slow"

test-all: tools  ## Run the tests, also those that take long
	$(PYTEST)

test-browser: tools  ## Run the tests of the dashboard in a browser (Debian: apt-get install chromium)
	$(BIN)/python -m pytest tests/dashboard/browser

test-cluster: tools  ## Run the tests of clusters that take long; as root also on a real Slurm and Ray, if they are installed
	$(BIN)/python -m pytest -s tests/schedulers tests/system/test_hosts.py tests/system/test_slurm_run.py \
		tests/system/test_ray.py tests/system/test_engines.py

check: tools  ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DOCS)  ## Build the documentation as a site, site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(DOCS): $(READY)
	$(INSTALL) -e ".[docs]"
	touch $(DOCS)

format: tools  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: tools  ## Measure training throughput on this machine
	for workload in cartpole pong halfcheetah; do $(BIN)/srl bench throughput --workload $$workload; done

clean:  ## Remove everything that was made
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
