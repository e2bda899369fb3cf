# Rein's commands. `make` alone lists them. Everything made lies in .venv/ and var/.
.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench protos docs up down clean lint unit

PYTHON := .venv/bin/python
REIN := .venv/bin/rein
FAST := not kafka and not sandbox and not engine and not loop and not install

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## bring everything a checkout needs; quick when nothing changed
	@sh deploy/setup.sh

demo: setup ## train a small real policy through a real harness; HARNESS=mixed, SHUFFLE=1
	@$(PYTHON) deploy/demo/run.py

check: setup ## format, lint, types, import direction, protobuf lint, unit tests; under a minute
	@$(MAKE) --no-print-directory -j2 lint unit

lint:
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/ruff check --quiet --output-format concise .
	@.venv/bin/lint-imports > var/imports.log || (cat var/imports.log; exit 1)
	@var/tools/node_modules/.bin/buf lint protos
	@.venv/bin/mypy --no-error-summary libs services tests deploy
	@for file in $$(git ls-files '*/conftest.py'); do .venv/bin/mypy --no-error-summary $$file || exit 1; done

unit:
	@OMP_NUM_THREADS=1 .venv/bin/pytest -q -n 2 -m "$(FAST)" libs services tests

test: setup lint ## everything: set-up, check, and all tests on the real parts
	@.venv/bin/pytest -q libs services tests

bench: setup ## all benchmarks, one JSON line per figure; make bench-NAME for one
	@for file in tests/bench/bench_*.py; do $(PYTHON) $$file || exit 1; done

bench-%: setup
	@$(PYTHON) tests/bench/bench_$(subst -,_,$*).py

protos: ## generate the Python code of protos/
	@$(PYTHON) deploy/protos.py

docs: ## generate the generated pages
	@$(PYTHON) deploy/docs.py

up: setup ## start a local stack in var/stack
	@$(REIN) up

down: ## stop the local stack
	@$(REIN) down

clean: ## stop what runs and remove var/
	@if [ -x $(REIN) ]; then for home in var/*/config; do [ -d "$$home" ] && $(REIN) down --home "$${home%/config}"; done; fi; true
	@rm -rf var
