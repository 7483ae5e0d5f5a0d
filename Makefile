# Every target goes through infra/bootstrap.py, which makes .venv and fills it from the lock files when that is due.
# Works from any folder (`make -C docwell run`). PYTHON names another Python; ARGS is handed on to the command.

# make's own path functions break at spaces, and MAKEFILE_LIST may begin with one.
ROOT := $(shell dirname -- "$$(printf %s "$(MAKEFILE_LIST)" | sed 's/^ *//')")
BOOT := $(or $(shell command -v python3 || command -v python3.12 || command -v python3.11),$(PYTHON))
ifeq ($(BOOT),)
$(error Docwell needs Python 3.11 or 3.12 with venv, and there is no python3 on the PATH. Set PYTHON to one)
endif
BOOTSTRAP := exec "$(BOOT)" "$(ROOT)/infra/bootstrap.py"

.PHONY: help run install test lint lock bench faults fuzz clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' "$(ROOT)/Makefile"

run: ## install what is missing and start everything; Ctrl-C stops it
	@$(BOOTSTRAP) run $(ARGS)

install: ## only the installation: .venv/bin/docwell exists afterwards
	@$(BOOTSTRAP) install

test: ## the whole test suite against real embedded services
	@$(BOOTSTRAP) test $(ARGS)

lint: ## format, style, types and import rules
	@$(BOOTSTRAP) lint

faults: ## kill everything at random for ten minutes, and check every answer; ARGS="--seed 7 --minutes 20"
	@$(BOOTSTRAP) python tests/faults/campaign.py $(ARGS)

fuzz: ## spoilt files through every parser, a minute each
	@$(BOOTSTRAP) python tests/fuzz/run.py $(ARGS)

bench: ## measurements, printed and kept in bench-results
	@$(BOOTSTRAP) python tests/bench/run.py $(ARGS)

lock: ## resolve the lock files anew (needs uv)
	@$(BOOTSTRAP) lock

clean: ## remove .venv and caches; documents and the database stay
	@cd "$(ROOT)" && rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@cd "$(ROOT)" && find shared ingest_worker query_server infra tests -name __pycache__ -type d -prune -exec rm -rf {} +
