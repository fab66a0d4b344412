# Two commands for a newcomer: `make run` and `make test`. Each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOT := $(shell find src/headgate -name '*.pxd') $(patsubst %.pxd,%.py,$(shell find src/headgate -name '*.pxd'))

.DEFAULT_GOAL := help
.PHONY: help install run test check format bench clean

help:  ## show this text
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml setup.py $(HOT)
	$(BIN)/pip install --quiet --editable ".[model,pddl,pipeline,planner,plots]"
	@$(BIN)/headgate --version
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml setup.py $(HOT)
	$(BIN)/pip install --quiet --editable ".[model,pddl,pipeline,planner,plots,dev]"
	@$(BIN)/headgate --version
	@touch $(VENV)/.installed $@

install: $(VENV)/.installed  ## prepare .venv with everything but the test tools

run: install  ## start the broker on loopback
	$(BIN)/headgate serve

test: $(VENV)/.dev  ## run every test
	$(BIN)/python -m pytest

check: $(VENV)/.dev  ## format, lint, type-check, check the imports' direction
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## compare with Mosquitto (installs Debian's package if it is missing)
	$(BIN)/python -m bench broker

format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

clean:  ## remove everything that can be made again
	rm -rf $(VENV) build dist
	find src \( -name '*.so' -o -name '*.c' \) -delete
