# Every command a reader or a contributor needs. `make` alone lists them.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
SITE := _build/html
BUILD := build . --all -W -n --keep-going
PORT := 8000
PYTEST := $(BIN)/python -m pytest --nbval --numprocesses=3 # one of three waits: for a browser, a kernel, a command
CHOSEN := not slow
CELLS := --config 'line-length = 84' # as many characters as the page shows of a line of code
INSTALLED := $(VENV)/.lmlib-installed
TORCH ?= $(shell sed -n 's/^torch==//p' requirements.lock)

ifneq ($(words $(VENV)), 1)
$(error VENV must be one path without spaces, not "$(VENV)")
endif

# What would change how notebooks run: another kernel "python3", start-up files of IPython, a backend of
# Matplotlib that shows nothing, Python without asserts, an encoding without "×"; and Python that compiles
# lmlib again in each of hundreds of processes.
export JUPYTER_PATH :=
export JUPYTER_PREFER_ENV_PATH := 1
export IPYTHONDIR := $(CURDIR)/_build/ipython
export PYTHONUTF8 := 1
unexport MPLBACKEND PYTHONOPTIMIZE PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help book test sources test-slow bench gpu serve notebooks lint lock clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { rm -f $@; exit 1; } # so that the next call tries again

# torch first: the lock does not name the wheels that a CUDA build brings with it
$(INSTALLED): requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing what requirements.lock pins into $(VENV): a few minutes and 1.8 GB the first time"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.lock)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

book: $(INSTALLED) ## build the book, executing every cell, and print where it is
	@rm -rf $(SITE) _build/.doctrees # stale pages survive --all
	@$(BIN)/jupyter-book $(BUILD) || { \
	  echo "No book: look above for the first line with WARNING or Error (page.ipynb:60008 is in cell 6)" >&2; exit 1; }
	@echo "The book: file://$(CURDIR)/$(SITE)/index.html (or run make serve: its search shows excerpts)"

test: $(INSTALLED) ## check everything: library, notebooks, numbers, rendered pages
	@$(MAKE) --no-print-directory --jobs=2 BUILD="$(BUILD) -q" book sources # a build keeps one core busy
	$(PYTEST) tests/book -m "built_book and ($(CHOSEN))"

sources: $(INSTALLED) ## check what does not need the built book
	$(PYTEST) --dist=loadfile -m "not built_book and ($(CHOSEN))" # the cells of a notebook run in one process

test-slow: ## the same, and ten runs of every notebook
	@$(MAKE) --no-print-directory test CHOSEN="slow or not slow"

bench: $(INSTALLED) ## lmlib beside its peers; writes benchmarks/results (a quiet machine, an hour)
	$(BIN)/python benchmarks/bpe.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/training.py

# first what needs a quiet GPU; the book that is then built shows its results
gpu: $(INSTALLED) ## on a GPU box: measure it, run every notebook and test there (in conda: VENV=$CONDA_PREFIX)
	$(BIN)/python benchmarks/gpu.py
	$(MAKE) test
	@echo "The GPU's results: $(CURDIR)/benchmarks/results/gpu"

serve: ## build if needed, then serve the book on http://localhost:8000 (or PORT=…)
	@test -f $(SITE)/index.html || $(MAKE) book
	$(BIN)/python -m http.server $(PORT) --bind localhost --directory $(SITE)

notebooks: $(INSTALLED) ## execute the notebooks in place and normalise what is stored
	$(BIN)/python tests/book/store_notebooks.py

lint: $(INSTALLED) ## ruff over code and notebooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ruff check $(CELLS) book/*.ipynb
	$(BIN)/ruff format --check $(CELLS) book/*.ipynb

lock: ## renew requirements.lock from pyproject.toml, in a fresh environment
	rm -rf _build/lock
	$(PYTHON) -m venv _build/lock
	_build/lock/bin/python -m pip install --quiet "torch==$(TORCH)"
	_build/lock/bin/python -m pip install --quiet --editable '.[test]'
	_build/lock/bin/python -m pip freeze --exclude-editable > _build/lock/installed.txt
	sed -E -e 's/^(torch==[0-9.]+)\+.*/\1/' -e '/^(nvidia|cuda|triton)/d' _build/lock/installed.txt > _build/lock/requirements.lock
	mv _build/lock/requirements.lock requirements.lock

clean: ## remove everything built, .venv included
	rm -rf _build .venv .pytest_cache .ruff_cache .hypothesis *.egg-info # never another VENV than .venv
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
