# Saccade's errands. `make` alone lists them; `make demo` and `make test` need nothing but Python ≥ 3.11.
# The environment lives in .venv (or in $SACCADE_VENV) and is made when it is missing or the lock has changed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: demo demo-photos test lint bench docs lock clean help

PYTHON ?= python3
VENV := $(or $(SACCADE_VENV),.venv)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
TORCH := torch==2.13.0
# PyTorch for CUDA brings its own; without a GPU its interpreter runs the kernels in the tests.
TRITON := triton==3.9.0

# Each line of a recipe is a shell of its own, so $$SECONDS is the time that line took.
say = echo "── $(1)"
took = echo "   $$SECONDS s"

demo: $(INSTALLED)  ## the idea in two minutes: make a world, train SCAN on it, search it, show why
	@$(call say,demo: a world of pictures → features → SCAN and a baseline → demo/report.html); \
	$(BIN)/saccade demo --out demo; $(took)
	@echo "── open demo/report.html in a browser; then search its pictures by any sentence:"
	@echo "$(BIN)/saccade serve demo/index"

demo-photos: $(INSTALLED)  ## the same on photographs: regions detected and named, a sentence explained (half a minute)
	@$(call say,demo-photos: photos/*.jpg → the bottom-up extractor → demo-photos/all.png); \
	$(BIN)/saccade detect photos/*.jpg --extractor bottomup --out demo-photos/all.png; $(took)
	@$(call say,one of them larger: demo-photos/one.png); \
	$(BIN)/saccade detect photos/000000433998.jpg --extractor bottomup --out demo-photos/one.png; $(took)
	@$(call say,why does a sentence fit? demo-photos/why.png); \
	$(BIN)/saccade explain photos/000000214753.jpg "two people ride horses on the beach" --out demo-photos/why.png; $(took)
	@echo "── open the three pictures in demo-photos/; then your own: $(BIN)/saccade detect YOUR.jpg"

test: lint  ## check style and types, then run the tests (README.md says how long)
	@$(call say,pytest on two cores); OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --durations 5; $(took)

lint: $(INSTALLED)  ## ruff and mypy
	@$(call say,ruff check); $(BIN)/ruff check; $(took)
	@$(call say,ruff format --check); $(BIN)/ruff format --check; $(took)
	@$(call say,mypy); $(BIN)/mypy; $(took)

bench: $(INSTALLED)  ## measure this CPU against official algorithms and its own floor: docs/performance.md (five minutes)
	@$(call say,benchmarks on the CPU → docs/performance.md); $(BIN)/python -m benchmarks.cpu; $(took)

docs: $(INSTALLED)  ## build the documentation into site/
	@$(call say,what the program says of itself: docs/cli.md · docs/systems/survey.md · docs/pictures/house.svg); \
	for page in cli_docs survey house_picture; do $(BIN)/python scripts/$$page.py; done; $(took)
	@$(call say,mkdocs → site/index.html); NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet; $(took)

lock:  ## write requirements.lock anew from pyproject.toml, in an environment of its own
	@$(call say,the newest versions that fit pyproject.toml and $(TORCH)); \
	bash scripts/lock.sh "$(PYTHON)" "$(TORCH)" requirements.lock; $(took)

clean:  ## remove what the other targets made, the environment included
	rm -rf .venv build site demo demo-photos .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "the lock file needs Python ≥ 3.11: make PYTHON=python3.11 …")'
	@$(call say,$(VENV): $$(grep -c '^[^#].*==' requirements.lock) packages from requirements.lock (once; one to two minutes)); \
	[ -x "$(BIN)/python" ] || "$(PYTHON)" -m venv "$(VENV)"; \
	$(PIP) install --no-compile -r requirements.lock; \
	[ "$$(uname)" != Linux ] || $(BIN)/python -c 'import triton' 2>/dev/null || $(PIP) install --no-compile $(TRITON); \
	$(PIP) install --no-deps --no-build-isolation -e .; touch "$@"; $(took)
