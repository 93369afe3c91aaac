# `make run` and `make test` do everything from a clean clone. Nothing is installed outside .venv, nothing needs root.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-dev run test test-core test-slow test-all test-tools test-k8s docs fuzz fuzz-simplex fuzz-hotstuff check ci soak soak-live soak-handover shadow lint format lock image sbom clean

# The first interpreter that is new enough and can make virtual environments (some distributions package that apart).
# `make PYTHON=/path/to/python …` chooses another.
PYTHON_WORKS := import sys, venv, ensurepip; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for candidate in python3.13 python3.12 python3.11 python3 python; do \
	if $$candidate -c '$(PYTHON_WORKS)' 2>/dev/null; then echo $$candidate; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
COMPILED := $(VENV)/.compiled
PIP := $(BIN)/python -m pip --disable-pip-version-check
SCENARIO ?= scenarios/smoke.yaml
# What else pytest is given.
PYTEST_OPTIONS ?=
FUZZ_SEEDS ?= 100
# Each protocol's sweep gets half of the processors: one alone leaves some idle while it starts, and while its last seeds run.
FUZZ_WORKERS ?= $(shell expr \( $$(getconf _NPROCESSORS_ONLN) + 1 \) / 2)
FUZZES := fuzz-simplex fuzz-hotstuff
SOAK_SEEDS ?= 10000
# Some more are drawn than are to pass: in one or two of a hundred too little happens for it to say anything. A sweep does not go on
# with another commit's outcomes, so each commit has a folder of its own.
SOAK_DRAWN ?= $(shell expr $(SOAK_SEEDS) + $(SOAK_SEEDS) / 33 + 1)
SOAK_OUT ?= runs/soak-$(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
SOAK_MINUTES ?= 60
SOAK_HANDOVERS ?= 100
SOAK_PROGRAMS ?= 100000
SOAK_PROCESSES ?= 1
SOAK_CLIMBS ?= 100000

# The stamps hold the folder that was installed: an environment that was moved, copied along with the tree (it would run the
# code of the other tree) or lost its interpreter does not count as installed.
ifneq ($(shell test -x $(BIN)/python && cat $(INSTALLED) 2>/dev/null),$(CURDIR))
.PHONY: $(INSTALLED)
endif
ifneq ($(shell cat $(INSTALLED_DEV) 2>/dev/null),$(CURDIR))
.PHONY: $(INSTALLED_DEV)
endif
ifneq ($(shell cat $(COMPILED) 2>/dev/null),$(CURDIR))
.PHONY: $(COMPILED)
endif

help:
	@echo "make run      install what is missing and run $(SCENARIO) (SCENARIO=FILE chooses another)"
	@echo "make test     install what is missing and run the tests that catch most for their time (some minutes)"
	@echo "make test-tools  install the browser, the shells and the other programs that tests need (Debian's packages; root or sudo)"
	@echo "make test-slow  run the other tests;  make test-all  runs both;  make check  runs lint, too"
	@echo "make test-core  run the core's tests where no kit is installed"
	@echo "make fuzz     run $(FUZZ_SEEDS) random scenarios for each protocol"
	@echo "make ci       do what continuous integration does, in a fresh clone of the last commit"
	@echo "make install  build the environment in $(VENV) alone; make install-dev adds what tests, lint and types need"
	@echo "make soak     $(SOAK_SEEDS) random scenarios for each protocol, $(SOAK_PROGRAMS) random actor programs, $(SOAK_MINUTES) minutes of looking for"
	@echo "              the dearest ones (hours; all go on where they were interrupted; SOAK_PROCESSES=N for programs), and the tests"
	@echo "              marked soak"
	@echo "make soak-live  a live testnet under load and rolling faults for $(SOAK_MINUTES) minutes: roots agree, nothing grows, nothing is left"
	@echo "make soak-handover  $(SOAK_HANDOVERS) live runs whose drivers are killed at any moment: each gets its verdict, nothing is left"
	@echo "make shadow   execute a run's blocks again (RUN=$(RUN)) under every other Python (SHADOW='PATH …' chooses)"
	@echo "make docs     build the pages as a site in build/site, with search; a dead link fails"
	@echo "make lint     ruff and mypy;  make format  lets ruff rewrite"
	@echo "make lock     resolve the dependencies anew (needs uv)"
	@echo "make image    build the container image (needs docker, or CONTAINERS=podman);  make sbom  prints its bill of materials"
	@echo "make test-k8s run it on a Kubernetes: the one of KUBECONFIG, or the lab's beside this folder"
	@echo "make clean    remove the environment and all caches; runs/ stays"

run: install
	$(BIN)/stampede run $(SCENARIO)

# Tests start many processes. Each would compile every module anew if none were allowed to keep bytecode.
test test-slow test-all: export PYTHONDONTWRITEBYTECODE :=

# It needs no environment, and goes on beside the installation.
test-tools:
	@'$(or $(PYTHON),false)' -m tests.tools

test: install-dev
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) -m 'not slow and not soak'

# The core's tests where no kit is installed.
test-core: install-dev
	$(BIN)/python -m tests.core_alone

test-slow: install-dev
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) -m 'slow and not soak'

test-all: install-dev
	$(BIN)/python -m pytest $(PYTEST_OPTIONS)

# The same seeds each time. In some of them too little happens for a verdict; most must pass, and none may fail. Two sweeps share
# a terminal, so neither draws on it.
fuzz: install
	@TERM=dumb $(MAKE) --no-print-directory --jobs=2 --keep-going $(FUZZES)

$(FUZZES): fuzz-%: install
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
		$(BIN)/stampede fuzz --protocol $* --seeds 0:$(FUZZ_SEEDS) --workers $(FUZZ_WORKERS) \
			--min-passed $$(expr $(FUZZ_SEEDS) \* 9 / 10) --out "$$folder/$*"

check: lint test-all

ci:
	.ci/clone

# All parts run, whatever one of them comes to; the exit code is the last one that was not 0.
soak: install-dev
	@trap 'exit 130' INT TERM; status=0; \
	for protocol in simplex hotstuff; do \
		$(BIN)/stampede fuzz --protocol $$protocol --seeds 0:$(SOAK_DRAWN) --min-passed $(SOAK_SEEDS) \
			--out $(SOAK_OUT)-$$protocol || status=$$?; \
	done; \
	$(BIN)/python -m tests.validator.pvm.soak 0:$(SOAK_PROGRAMS) --processes $(SOAK_PROCESSES) --out runs/soak-programs || status=$$?; \
	$(BIN)/python -m tests.validator.pvm.search 0:$(SOAK_CLIMBS) --minutes $(SOAK_MINUTES) --out runs/soak-prices || status=$$?; \
	$(BIN)/python -m pytest -m soak -n 0 || status=$$?; \
	exit $$status

soak-live: install-dev
	$(BIN)/python -m tests.cluster.live.soak --minutes $(SOAK_MINUTES)

# Other Pythons get an environment each, with just what executing blocks needs, in the versions of the lock.
SHADOW_PACKAGES := blake3 cffi llvmlite msgspec numba numpy pycparser pycryptodome pynacl typing-extensions
SHADOW ?= $(foreach version,3.11 3.12 3.13,$(shell python$(version) -c '' 2>/dev/null && command -v python$(version)))
SHADOW_VENVS := .shadow
RUN ?= runs/latest

soak-handover: install-dev
	$(BIN)/python -m tests.cluster.live.soak_handover 0:$(SOAK_HANDOVERS) --out runs/soak-handover

shadow: install
	@test -n '$(SHADOW)' || { echo "no other Python is on PATH; name some with: make shadow SHADOW='/path/to/python ...'" >&2; exit 2; }
	@mkdir -p $(SHADOW_VENVS)
	@awk -v wanted=' $(SHADOW_PACKAGES) ' '/^[a-z]/ { split($$0, name, "=="); keep = index(wanted, " " name[1] " ") } keep' \
		requirements.lock > $(SHADOW_VENVS)/requirements.lock
	@options=; for python in $(SHADOW); do \
		place=$(SHADOW_VENVS)/$$(echo $${python#/} | tr -c 'A-Za-z0-9.\n' '-'); \
		test -x $$place/bin/python || $$python -m venv $$place || exit 2; \
		$$place/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes \
			--requirement $(SHADOW_VENVS)/requirements.lock || exit 2; \
		options="$$options --python $$place/bin/python"; \
	done; $(BIN)/stampede verify-run $(RUN) $$options

docs: $(INSTALLED_DEV)
	$(BIN)/mkdocs build
	@echo "build/site/index.html"

lint: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(INSTALLED) $(COMPILED)

install-dev: $(INSTALLED_DEV) $(COMPILED)

# No process of a testnet loads these: Ray's classes for Java, the pages of its dashboard (which needs ray[default]), and the tests
# of packages. Together they are some 70 MB.
UNUSED := \( -path '*/ray/jars' -o -path '*/ray/dashboard/client' -o -name tests \)

# A stamp goes first and comes last, so that an interrupted install leaves nothing that counts as installed. Bytecode of packages is
# compiled when a module is first imported: most of them never are.
$(INSTALLED): requirements.lock pyproject.toml
	@rm -f $@ $(INSTALLED_DEV) $(COMPILED)
	@'$(or $(PYTHON),false)' -c '$(PYTHON_WORKS)' || { echo "stampede needs Python 3.11, 3.12 or 3.13 with venv and ensurepip" \
		"(Debian: python3-venv); name one with: make PYTHON=/path/to/python $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Building $(VENV) with $(PYTHON) and the packages of requirements.lock (about 550 MB on disk; a minute or two)."
	@'$(PYTHON)' -m venv --clear $(VENV)
	@$(PIP) install --quiet --no-compile --require-hashes --requirement requirements.lock
	@find $(VENV)/lib/python*/site-packages -type d $(UNUSED) -prune -exec rm -rf {} +
	@$(PIP) install --quiet --no-build-isolation --no-deps --editable .
	@printf '%s' '$(CURDIR)' > $@

$(INSTALLED_DEV): $(INSTALLED) requirements-dev.lock
	@rm -f $@
	@echo "Adding the packages of requirements-dev.lock for tests, lint and types (about 400 MB on disk)."
	@$(PIP) install --quiet --no-compile --require-hashes --requirement requirements-dev.lock
	@printf '%s' '$(CURDIR)' > $@

# With `make -j2` it goes on beside all that needs no compiled code, which is lint.
$(COMPILED): $(INSTALLED)
	@rm -f $@
	@$(BIN)/python -m cluster.commands.cli.warm_up
	@printf '%s' '$(CURDIR)' > $@

# The environment's lock; the same versions with the development tools; and the image's, which has Ray's job server and uploads.
UV_COMPILE := uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --quiet

lock:
	@command -v uv >/dev/null || { echo "make lock needs uv on PATH (python -m pip install uv)" >&2; exit 2; }
	$(UV_COMPILE) --upgrade --group build --output-file requirements.lock
	$(UV_COMPILE) --upgrade --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(UV_COMPILE) --upgrade --group image --constraint requirements.lock --output-file k8s/requirements.lock

# The base by its digest, which is that of all its architectures. k8s/README.md shows how to build for several.
IMAGE_BASE ?= python:3.11.13-slim-bookworm@sha256:86adf8dbadc3d6e82ee5dd2c74bec2e1c2467cdad47886280501df722372d2e1
IMAGE ?= stampede:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE_PLATFORM ?=
IMAGE_OPTIONS ?=
CONTAINERS ?= docker

image:
	$(CONTAINERS) build $(if $(IMAGE_PLATFORM),--platform $(IMAGE_PLATFORM)) --build-arg BASE=$(IMAGE_BASE) \
		--build-arg COMMIT=$$(git describe --always --dirty --abbrev=40 --exclude='*') --file k8s/Dockerfile --tag $(IMAGE) $(IMAGE_OPTIONS) .

sbom:
	@$(CONTAINERS) run --rm $(IMAGE) cat sbom.json

# Some minutes, and ten more if the lab has to be built, which is in LAB_STATE then.
test-k8s: install-dev
	$(BIN)/python -m pytest -m soak -n 0 -o faulthandler_timeout=0 tests/k8s/test_cluster.py

clean:
	rm -rf $(VENV) $(SHADOW_VENVS) .tools .against build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
