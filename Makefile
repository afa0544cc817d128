# Needs git, make, python3 >= 3.11 and python3-venv. Everything else is installed into $(VENV): once, and again when
# pyproject.toml changes.
#
#   make demo      hang a small real server here and diagnose it    (SCENARIO=lock-cycle for another one)
#   make test      all tests                                        (PYTEST_ARGS='-n0 -k graph', TORCH= to do without torch)
#   make test-servers   real vLLM and SGLang on this CPU, broken on purpose: half an hour, 8 GB of disk   (SERVERS_ARGS='-m few')
#   make loop      train a drafter for a real vLLM here, serve it, measure and replay it   (ENGINE=sglang PYTHON_OF=path TARGET=dir)
#   make check     lint, types, import rules, packaging
#   make accuracy  how often it is right about faults that were planted   (RUNS=3)
#   make fuzz      damaged input for every parser                   (SECONDS=300)
#   make harm      whether watching a serving vLLM does it harm     (VLLM=venv MODEL=dir)
#   make manual    the manual page, from the commands' help
#   make bench     what gpudiag costs
#   make format    what ruff can mend by itself
#   make clean     remove the environment and the caches

.DELETE_ON_ERROR:
.PHONY: help demo test test-servers loop check accuracy fuzz harm manual bench format clean rebuild

VENV ?= .venv
SCENARIO ?=
SERVERS_ARGS ?= -m servers
ENGINE ?= vllm
PYTHON_OF ?=
TARGET ?=
LOOP ?= drafter-loop.out
LOOP_ARGS ?=
RUNS ?= 3
SECONDS ?= 300
PYTEST_ARGS ?= -n 2
# The tests with real collectives need torch. Its CPU build is enough; pip takes what the configured index offers.
TORCH ?= yes

comma := ,
BIN := $(VENV)/bin
DEMO_READY := $(VENV)/.ready-demo
TEST_READY := $(VENV)/.ready-test$(if $(TORCH),-torch)
EXTRAS := dev$(if $(TORCH),$(comma)test-torch)

# Each candidate is run: a name on PATH may be a version manager's shim for a Python that is not selected.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do "$$p" -c '$(NEW_ENOUGH)' 2>/dev/null && { echo "$$p"; break; }; done)
endif

# An environment that was left half made, or whose interpreter was upgraded or removed, is made anew.
BROKEN := $(shell test ! -d $(BIN) || $(BIN)/python -c 'import pip; $(NEW_ENOUGH)' 2>/dev/null || echo rebuild)

help:
	@sed -n 's/^#   make/make/p' Makefile

# The demo's hang is what it is for, and no failure.
demo: $(DEMO_READY)
	@$(BIN)/gpudiag demo --fail-on never $(SCENARIO)

test: $(TEST_READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# One server at a time: each takes two cores and 4 GB.
test-servers: $(TEST_READY)
	$(BIN)/python -m tests.servers.environments
	GPUDIAG_SERVER_TESTS=yes $(BIN)/python -m pytest -n0 tests/servers $(SERVERS_ARGS)

# An engine of one's own (PYTHON_OF) instead of the one of test-servers, which is a CPU build; SGLang needs a GPU for EAGLE-3.
loop: $(TEST_READY)
	$(BIN)/python -m tests.servers.drafter_loop --engine $(ENGINE) --out $(LOOP) $(if $(PYTHON_OF),--python $(PYTHON_OF)) \
	    $(if $(TARGET),--target $(TARGET)) $(LOOP_ARGS)

check: $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -n0 -q tests/packaging

accuracy: $(TEST_READY)
	$(BIN)/python -m tests.faults.accuracy --runs $(RUNS)

fuzz: $(TEST_READY)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

harm: $(TEST_READY)
	$(BIN)/python -m tests.harm.serving --vllm "$(VLLM)" --model "$(MODEL)"

manual: $(DEMO_READY)
	$(BIN)/python docs/make_manual.py

bench: $(DEMO_READY)
	@set -e; for b in benchmarks/*.py; do echo "$$b"; $(BIN)/python "$$b"; done

format: $(TEST_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(DEMO_READY): $(VENV)/pyvenv.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(TEST_READY): $(VENV)/pyvenv.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@ $(DEMO_READY)

# Debian and Ubuntu ship python3 without ensurepip; `python3 -m venv` then fails half-way.
$(VENV)/pyvenv.cfg: $(BROKEN)
	@if [ -z "$(PYTHON)" ]; then \
	    if have=$$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null); \
	    then echo "gpudiag needs Python 3.11 or newer, python3 is $$have: apt-get install python3.11 python3.11-venv" >&2; \
	    else echo "gpudiag needs Python 3.11 or newer: apt-get install python3 python3-venv" >&2; fi; \
	    exit 1; \
	fi
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { echo "$(PYTHON) is not Python 3.11 or newer: apt-get install python3.11 python3.11-venv" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	    version=$$("$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	    echo "$(PYTHON) cannot make virtual environments: apt-get install python$$version-venv" >&2; \
	    exit 1; \
	}
	@echo "setting up $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv --clear $(VENV)

rebuild:
	@echo "$(VENV) does not work any more"
