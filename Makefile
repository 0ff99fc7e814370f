# Every command of the project. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BUILD_LOCK := container/build-requirements.txt
LOCKS := infra/requirements.txt container/requirements.txt tests/requirements.txt
# Two tools pin packages that the project must not get, so each has an environment of its own.
AWS_VENV := .venv-aws
AWS_LOCK := infra/local/aws/requirements.txt
POLICY_VENV := .venv-policy
POLICY_LOCK := tests/infra/requirements.txt
INSTALLED_ALL := $(INSTALLED) $(AWS_VENV)/.installed $(POLICY_VENV)/.installed node_modules/.installed

# A version manager may answer to the name python3.11 without having it, so it is started, not looked up.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)

# Commands and what brings them on Debian: hosts are network namespaces (ip), and sagemaker-training is compiled from
# source (cc, Python's headers).
COMMANDS := ip:iproute2 cc:gcc

# Debian keeps ip in a folder that an ordinary user's PATH may lack.
export PATH := $(PATH):/usr/sbin:/sbin
# Handed to the recipes as environment variables, so that a name with spaces or quotes stays one word.
export DIR
PYTEST_ARGS ?=
CDK_ARGS ?=
START_ARGS ?=

ifneq ($(filter run-images,$(MAKECMDGOALS)),)
ifeq ($(strip $(DIR)),)
$(error run-images needs a folder of images, one subfolder per class: make run-images DIR=path/to/images)
endif
endif

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(INSTALLED_ALL) ## Install everything from the hash-locked files (about 5 minutes, 6 GB; again: nothing)

.PHONY: run
run: setup ## On this machine: deploy to an embedded AWS, execute the article's comparison, show the results
	@$(BIN)/python -m infra.local.aws run

.PHONY: run-images
run-images: setup ## Train on your own images on this machine: make run-images DIR=path/to/images
	@$(BIN)/python -m infra.local train --images "$$DIR"

# The CDK's command line with the pinned Node, whatever Node the machine has.
CDK = PATH="$(CURDIR)/$(BIN):$$PATH" node node_modules/aws-cdk/bin/cdk
COUNTERPOISE = $(BIN)/counterpoise

.PHONY: synth
synth: setup ## Write the CloudFormation template to cdk.out; needs no account
	@$(CDK) synth --quiet && echo "cdk.out: written"

.PHONY: deploy
deploy: setup ## Create or update the stack on AWS; asks before rights are widened (CDK_ARGS="-c counterpoise:create_vpc=true")
	@$(CDK) deploy $(CDK_ARGS)

.PHONY: deploy-ci
deploy-ci: setup ## The same without a question, for pipelines; shows the difference first
	@$(CDK) diff $(CDK_ARGS) </dev/null
	@$(CDK) deploy --require-approval never $(CDK_ARGS) </dev/null

.PHONY: image
image: setup ## Build the image of the training jobs, push it, make it the current one
	@$(COUNTERPOISE) image build
	@$(COUNTERPOISE) image push

.PHONY: start
start: setup ## Start an execution and wait for its end (START_ARGS="--input run.json")
	@$(COUNTERPOISE) start --wait $(START_ARGS)

.PHONY: destroy
destroy: setup ## Delete the stack; docs/teardown.md says what stays
	@$(CDK) destroy $(CDK_ARGS)

.PHONY: test
test: lint ## Lint, then every test suite (PYTEST_ARGS="-k name" narrows it)
	$(BIN)/python -m pytest -m "not bench and not soak and not thorough" $(PYTEST_ARGS)

.PHONY: test-quick
test-quick: setup ## Only the tests that start no cluster
	$(BIN)/python -m pytest -m "not bench and not soak and not thorough and not cluster and not e2e" $(PYTEST_ARGS)

.PHONY: faults
faults: setup ## Let every fault of docs/reliability.md happen; runs/faults/latest.json has what each took
	$(BIN)/python -m pytest tests/faults tests/cluster/test_security.py -m "not soak" $(PYTEST_ARGS)

.PHONY: soak
soak: setup ## Half an hour of hosts that are killed and come back
	$(BIN)/python -m pytest tests/faults -m soak -s $(PYTEST_ARGS)

.PHONY: lint
lint: setup ## Style, format, types, import rules, and whether the generated documents are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m docs.generate --check

.PHONY: bench
bench: setup ## Measure; nothing here passes or fails by a time
	$(BIN)/python -m pytest tests/benchmarks -m bench -s $(PYTEST_ARGS)

.PHONY: docs
docs: setup ## Write what is derived: the contract's list of timm's models, the documents from the contract
	$(BIN)/python -m docs.timm_models
	$(BIN)/python -m docs.generate

# A later lock takes the earlier ones as constraints, so that shared packages have one version.
COMPILE = $(BIN)/uv pip compile --quiet --generate-hashes --custom-compile-command "make lock" \
	--python-version 3.11 --python-platform x86_64-manylinux_2_28 --no-emit-package pip $(if $(UPGRADE),--upgrade)

.PHONY: lock
lock: setup ## Compile the pins of pyproject.toml to the locks (UPGRADE=1: take newer indirect packages)
	$(COMPILE) --group pyproject.toml:build -o $(BUILD_LOCK)
	$(COMPILE) --group pyproject.toml:container -c $(BUILD_LOCK) -o container/requirements.txt
	$(COMPILE) --group pyproject.toml:infra -c container/requirements.txt -o infra/requirements.txt
	$(COMPILE) --group pyproject.toml:dev -c container/requirements.txt -c infra/requirements.txt \
		-c $(BUILD_LOCK) -o tests/requirements.txt
	$(COMPILE) --group pyproject.toml:emulator -o $(AWS_LOCK)
	$(COMPILE) --group pyproject.toml:policy -o $(POLICY_LOCK)
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --package-lock-only --ignore-scripts --loglevel=error

.PHONY: clean
clean: ## Remove the environments, runs/ and caches
	rm -rf --one-file-system $(VENV) $(AWS_VENV) $(POLICY_VENV) node_modules cdk.out runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --no-input --require-hashes --no-deps

# Two packages come as source. Built in isolation they would pull a setuptools that no hash covers, so the locked one
# goes first and builds them.
$(INSTALLED): $(BUILD_LOCK) $(LOCKS) | commands
	@[ "$$(uname -sm)" = "Linux x86_64" ] || $(call fail,the locks are for Linux x86_64; this is $$(uname -sm))
	@python="$(PYTHON)"; \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		$(call fail,needs Python 3.11 or newer; found $$($$python --version 2>&1 || true); name one: make setup PYTHON=/path/to/python3.11); \
	missing=""; \
	$$python -c 'import ensurepip, venv' 2>/dev/null || missing="python3-venv"; \
	$$python -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("include"), "Python.h").stat()' 2>/dev/null || \
		missing="$$missing python3-dev"; \
	$(install_missing); \
	$$python -m venv $(VENV)
	$(PIP_INSTALL) -r $(BUILD_LOCK)
	$(PIP_INSTALL) --no-build-isolation $(foreach lock,$(LOCKS),-r $(lock))
	$(BIN)/python -m pip check
	printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s/$(BIN)/python" -P -m infra.client "$$@"\n' "$(CURDIR)" "$(CURDIR)" \
		>$(BIN)/counterpoise
	chmod +x $(BIN)/counterpoise
	touch $@

$(AWS_VENV)/.installed: $(AWS_LOCK) | $(INSTALLED)
	$(call tool_environment,$(AWS_VENV),$(AWS_LOCK))

$(POLICY_VENV)/.installed: $(POLICY_LOCK) | $(INSTALLED)
	$(call tool_environment,$(POLICY_VENV),$(POLICY_LOCK))

define tool_environment
$(BIN)/python -m venv $(1)
$(1)/bin/python -m pip install --disable-pip-version-check --no-input --require-hashes --no-deps --quiet -r $(2)
$(1)/bin/python -m pip check
touch $(1)/.installed
endef

# npm comes with the Node of infra/requirements.txt.
node_modules/.installed: package.json package-lock.json | $(INSTALLED)
	PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --ignore-scripts --loglevel=error
	touch $@

.PHONY: commands
commands:
	@missing=""; \
	for pair in $(COMMANDS); do command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair##*:}"; done; \
	$(install_missing)

# fail: one line on standard error, exit 1. install_missing: brings the Debian packages in $missing, as root or not at all.
fail = { echo "setup: $(1)" >&2; exit 1; }
define install_missing
if [ -n "$$missing" ]; then \
	missing="$$(printf '%s\n' $$missing | sort -u | tr '\n' ' ')"; \
	sudo=""; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
	{ command -v apt-get && $$sudo true; } >/dev/null 2>&1 || $(call fail,install these Debian packages first: $$missing); \
	$$sudo apt-get update -qq; \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
fi
endef
