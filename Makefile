# Start with `make demo` and `make test`. Both create the virtual environment in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .bench-peers

.DEFAULT_GOAL := help
.PHONY: help setup demo check test docs package live image faults soak fuzz sbom lint format run bench bench-check bench-peer lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## create the virtual environment in .venv (quick when nothing changed)

$(STAMP): requirements.lock requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("csi needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Use another one: make PYTHON=python3.12 …") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock -r requirements-dev.lock
	@$(BIN)/python -m pip uninstall --quiet --disable-pip-version-check --yes csi 2>/dev/null || true  # the name until 1.0.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $(STAMP)

demo: setup  ## deliver items of a simulated YouTube to a receiver, until Ctrl-C (30 s without a terminal)
	$(BIN)/csi demo

check: setup lint  ## the quick loop: lint, types, import rules and unit tests, under a minute
	$(BIN)/python -m pytest tests/unit -n 2

test: setup lint  ## run lint, types, import rules and all tests
	$(BIN)/python -m pytest -n 4

live: setup  ## install under a real systemd and build the image, where this machine can (root)
	$(BIN)/python -m pytest tests/live -m live --timeout 1800 -rs

image: docs  ## build the container image with podman or docker: make image BASE=python:3.12-slim-bookworm
	$$(command -v podman || command -v docker || { echo "make image needs podman or docker" >&2; exit 1; }) build \
		$(if $(BASE),--build-arg BASE=$(BASE)) -t creator-signals:$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' csi/__init__.py) .

faults: setup  ## run every case of the fault catalogue, one line of numbers each (ten minutes to half an hour)
	$(BIN)/python -m pytest tests/faults -m "faults or not faults" --timeout 1800 -n 2 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m pytest tests/acceptance tests/integration -m faults --timeout 1800 -n 2
	$(BIN)/python -m pytest tests/unit --hypothesis-profile thorough -n 2

soak: setup  ## run for a long time with random faults on both sides: make soak SECONDS=600 SEED=7
	$(BIN)/python -m tests.faults.soak --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))

fuzz: setup  ## feed mutated input from outside to the parsers: make fuzz SECONDS=600 SEED=7
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

sbom: setup  ## write sbom.json (CycloneDX) from requirements.lock
	$(BIN)/cyclonedx-py requirements requirements.lock --output-reproducible --of JSON -o sbom.json

lint: setup  ## run ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup  ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

run: setup  ## run worker and sidecar of the Procfile in the foreground (needs CSI_CONFIG_PATH and its variables)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/honcho start worker web

bench: setup  ## measure speed and footprint against their targets: make bench, make bench PART=line
	PYTHONPATH="$(PEERS)" $(BIN)/python -m ops.bench $(PART)

bench-check: setup  ## measure, and report ratios that fell by more than a third since the baseline
	PYTHONPATH="$(PEERS)" $(BIN)/python -m ops.bench $(PART) --check

bench-peer: setup  ## install Celery beside the project, for the benchmark only
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(PEERS) "celery[redis]>=5.5"

docs: setup  ## build the documentation site, which the sidecar serves at /docs/ and the wheel contains
	$(BIN)/python -m ops.docs_site

package: docs  ## build the wheel of a release, with the documentation site, into dist/
	$(BIN)/python -m hatchling build -t wheel

lock: setup  ## write requirements.lock and requirements-dev.lock from pyproject.toml (needs uv)
	$(BIN)/python -m ops.lock

clean:  ## delete the virtual environment and all caches
	rm -rf $(VENV) $(PEERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
