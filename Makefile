# `make help` lists what there is. Everything runs in .venv, made from requirements.lock.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made

.PHONY: help setup lint types doors unit check e2e e2e-leak test demo bench bench-scale bench-slope bench-gateway accuracy accuracy-record generate golden lock site sbom soak clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml
	@if command -v uv >/dev/null; then \
	  [ -x $(BIN)/python ] || uv venv --quiet --python $(PYTHON) $(VENV); \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock; \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
	  [ -x $(BIN)/pip ] || $(PYTHON) -m venv $(VENV); \
	  $(BIN)/pip install --quiet --require-hashes -r requirements.lock; \
	  $(BIN)/pip install --quiet --no-deps --no-build-isolation -e .; \
	fi
	@touch $@

setup: $(STAMP) ## make .venv from requirements.lock

lint: $(STAMP) ## ruff: rules and form
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict, tests included
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/mypy e2e benchmarks

doors: $(STAMP) ## import-linter: the rooms' doors open one way
	$(BIN)/lint-imports

unit: $(STAMP) ## unit, laws, golden, contract, shell: no cluster
	$(BIN)/pytest tests

check: lint types doors unit ## before every push

e2e: $(STAMP) ## the stories, on a real control plane and, where it can be, a real node
	$(BIN)/python e2e/controlplane/build.py
	$(BIN)/python e2e/controlplane/fetch.py --or-say-why
	$(BIN)/python e2e/controlplane/haproxy.py --or-say-why
	$(BIN)/python e2e/controlplane/apart.py checkov
	$(BIN)/python e2e/controlplane/netns.py --or-plainly -- $(BIN)/python -m pytest e2e/stories

e2e-leak: $(STAMP) ## a real leak on two real nodes, and a real llama-server under load (21 GiB of memory)
	PLIMSOLL_UNUSED_VERBS=/dev/null $(BIN)/python e2e/controlplane/netns.py -- $(BIN)/python -m pytest e2e/stories/test_recycling_on_a_real_node.py

test: $(STAMP) ## everything that CI runs, with times and the slowest parts
	@$(BIN)/python tests/everything.py

demo: $(STAMP) ## a real control plane, a mixed fleet, Plimsoll, and a real llama-server
	@$(BIN)/python e2e/demo.py

bench: $(STAMP) ## ratios against kubectl and Python, on this machine
	@$(BIN)/python benchmarks/run.py

accuracy: $(STAMP) ## every reported figure beside the planned one and the peers': docs/measured/accuracy.md and its plot
	@$(BIN)/python -m benchmarks.accuracy --write

accuracy-record: $(STAMP) ## ask the peers that need an installation of their own anew (needs a package index)
	@$(BIN)/python -m benchmarks.accuracy.peers.record

bench-scale: $(STAMP) ## 1,000 nodes, 500 objects, 3,000 workers: docs/measured/scale.md (18 minutes; SHORT=1: 200 s, writes nothing)
	@$(BIN)/python benchmarks/scale.py $(if $(SHORT),--short,--write)

bench-slope: $(STAMP) ## false recycles and delays of the slope detector, by simulation
	@$(BIN)/python -m benchmarks.slope --seeds 2000-2029

bench-gateway: $(STAMP) ## the gate: what it keeps, costs and gives; real HAProxy, stand-in engines (20 minutes, on a quiet machine)
	@$(BIN)/python -m benchmarks.gateway --write

soak: $(STAMP) ## 30 minutes of faults by chance on a real control plane: docs/measured/soak.md
	@$(BIN)/python e2e/soak.py --write

generate: $(STAMP) ## print CRDs, RBAC, references and the chart's copies from the code, and deploy/ from the chart
	$(BIN)/plimsoll generate
	$(BIN)/python e2e/controlplane/plain.py

golden: $(STAMP) ## rewrite the golden files; the diff is the review
	PLIMSOLL_GOLDEN=write $(BIN)/pytest tests -k golden

lock: ## compile the lock files; new releases wait a week
	uv pip compile --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
	  --no-emit-find-links --python-version 3.11 --exclude-newer "$$(date -u -d '7 days ago' +%F)" \
	  --group dev pyproject.toml -o requirements.lock
	uv pip compile --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
	  --no-emit-find-links --python-version 3.11 -c requirements.lock \
	  pyproject.toml -o requirements.runtime.lock
	uv pip compile --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
	  --no-emit-find-links --python-version 3.11 --exclude-newer "$$(date -u -d '7 days ago' +%F)" \
	  --group docs -o requirements.docs.lock
	uv pip compile --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
	  --no-emit-find-links --python-version 3.11 --exclude-newer "$$(date -u -d '7 days ago' +%F)" \
	  --group checkov -o requirements.checkov.lock

sbom: $(STAMP) ## what the image holds of Python, as CycloneDX, in build/plimsoll.cdx.json
	@$(BIN)/python tests/write_sbom.py

site: $(STAMP) ## the documents as a site, in build/site; a link that leads nowhere fails
	@$(BIN)/python tests/build_site.py

clean: ## remove what was made here; the cache of built programs stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
