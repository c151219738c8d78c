# Attention on Edges. `make help` lists the commands; `make book` and `make test` do all set-up themselves.

# Chapters and tests run two at a time with one thread each: small models gain little from a second
# thread, and the figures that chapters print do not depend on the number of cores.
JOBS ?= 2
THREADS ?= 1
DEVICE ?= cpu
# NIGHTLY=1: the tests that take long, too.
export EDGEWISE_NIGHTLY := $(NIGHTLY)

BIN := .venv/bin
TIMES := _build/times.txt
# The chapters that train come first, so that two at a time end together.
LONGEST := $(wildcard book/07-*.md book/08-*.md book/11-*.md)
CHAPTERS := $(LONGEST) $(filter-out $(LONGEST),$(shell grep -l '^kernelspec:' book/*.md))
EXECUTED := $(CHAPTERS:book/%.md=_build/executed/%.ipynb)
# What a page depends on besides what its chapter printed.
RENDER_FROM := _config.yml _toc.yml $(wildcard code/attention_on_edges/live/*) $(shell find book -type f ! -path '*/__pycache__/*' ! -name '*.ipynb')

# Tests that read the built book.
BUILT := tests/book/test_book.py tests/book/test_downloads.py

# Without bytecode, each of the hundred processes to come would compile PyTorch's modules anew.
unexport PYTHONDONTWRITEBYTECODE
export JUPYTER_PREFER_ENV_PATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export IPYTHONDIR := $(CURDIR)/_build/ipython
export PYDEVD_DISABLE_FILE_VALIDATION := 1

MAKEFLAGS += --no-print-directory --silent
.DELETE_ON_ERROR:
.PHONY: help book test lint notebooks serve screenshots live-speed pdf artifacts mutants publish lock clean env check alone executed

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 18

# $(call stage,NAME,COMMAND) runs COMMAND and notes how long it took.
stage = start=$$(date +%s); $(2) || exit 1; \
	mkdir -p _build; printf '%-10s %4d s\n' '$(1)' $$(($$(date +%s) - start)) >> $(TIMES)

book: alone ## build the book into _build/html, running the chapters that changed
	@rm -f $(TIMES)
	@$(call stage,install,$(MAKE) env)
	@$(call stage,twins,$(BIN)/python book/_ext/twins.py)
	@$(call stage,chapters,$(MAKE) executed)
	@$(call stage,pages,$(MAKE) _build/rendered)
	@rm -f _build/lock; cat $(TIMES)
	@echo "The book is _build/html/index.html"

test: alone ## lint, tests, every chapter, the book and its pages in a browser
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null || { \
		echo "make test needs a browser: install Debian's package chromium (or Chrome)." >&2; exit 1; }
	@rm -f $(TIMES)
	@$(call stage,install,$(MAKE) env)
	@$(call stage,lint,$(MAKE) lint)
	@$(call stage,tests,OMP_NUM_THREADS=$(THREADS) $(BIN)/pytest -q -n $(JOBS) --dist worksteal tests $(BUILT:%=--ignore=%))
	@$(call stage,chapters,$(MAKE) executed)
	@$(call stage,pages,$(MAKE) _build/rendered)
	@$(call stage,browser,$(MAKE) _build/looked_at)
	@rm -f _build/lock; cat $(TIMES)

check: env ## lint, and the tests of what has changed since the last commit
	@$(MAKE) lint
	@tests=$$($(BIN)/python tests/changed.py); if [ -z "$$tests" ]; then echo "Nothing has changed that has tests."; \
		else OMP_NUM_THREADS=$(THREADS) $(BIN)/pytest -q -n $(JOBS) --dist worksteal $$tests; fi

lint: env ## ruff's checks and format; types of the library
	@$(BIN)/ruff check code tests book/_ext
	@$(BIN)/ruff format --check code tests book/_ext
	@$(BIN)/mypy

notebooks: env ## regenerate the chapters' twins
	@$(BIN)/python book/_ext/twins.py

serve: book ## build the book and show it at http://127.0.0.1:8000
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html 8000

screenshots: book ## pictures of every page for people to look at (PAGES="03 lab" for some)
	@$(BIN)/python tests/browser.py $(PAGES)

live-speed: ## measure the live translator in a browser, for the status page
	@$(BIN)/python tests/live_speed.py

pdf: book ## print the book into _build/attention-on-edges.pdf (needs Chromium)
	@PYTHONPATH=tests $(BIN)/python book/_ext/book_pdf.py

artifacts: env ## retrain every experiment, for hours (DEVICE=cuda, NAMES="copy sort"; SMALL=1: a smoke test)
	@runs=runs; into=book/artifacts; all="sorted(EXPERIMENTS.keys() - LARGE)"; \
	if [ -n "$(SMALL)" ]; then \
		runs=$$(mktemp -d); into=$$runs/artifacts; mkdir $$into; all=EXPERIMENTS; export EDGEWISE_CACHE=$$runs/cache; \
	fi; \
	for name in $${NAMES:-$$($(BIN)/python -c "from attention_on_edges.experiments import EXPERIMENTS, LARGE; print(*$$all)")}; do \
		$(BIN)/edgewise train $$name --resume --device $(DEVICE) --out $$runs/$$name $(if $(SMALL),--small) || exit 1; \
		rm -rf $$into/$$name && cp -R $$runs/$$name/artifact $$into/$$name || exit 1; \
	done; \
	echo "The artifacts are in $$into"

mutants: env ## break the package on purpose, line by line, and see the tests notice
	@$(BIN)/python tests/mutants.py

publish: env ## make a fork's files name the fork, and say how its pages are published
	@$(BIN)/python book/_ext/publish.py

# Pins stay as they are unless they have to change; what only torch's CUDA build asks for is left to it.
lock: ## regenerate requirements.txt from pyproject.toml (needs uv; UPGRADE="--upgrade-package torch")
	@mkdir -p _build
	uv pip compile --quiet --universal --python-version 3.11 --no-annotate --all-extras $(UPGRADE) \
		--custom-compile-command "make lock" --output-file requirements.txt pyproject.toml
	grep -v -E '^(cuda-|nvidia-|triton=)' requirements.txt > _build/lock.txt && mv _build/lock.txt requirements.txt

clean: ## remove all that was built; .venv stays
	rm -rf _build .pytest_cache .ruff_cache .hypothesis

# Which Python, uv or pip, which build of PyTorch: .ci/install says.
env:
	@.ci/install

# The second of two runs at once would spoil what the first builds. A lock whose process is gone is none.
alone:
	@mkdir -p _build; if kill -0 "$$(cat _build/lock 2>/dev/null)" 2>/dev/null; then \
		echo "make runs here already (process $$(cat _build/lock)): wait for its end." >&2; exit 1; \
	fi; echo $$PPID > _build/lock

# A chapter whose outcome may have changed loses it to stale.py; what is missing is made.
executed:
	@$(BIN)/python book/_ext/stale.py > /dev/null
	@$(MAKE) -j$(JOBS) $(EXECUTED)

_build/executed/%.ipynb:
	@OMP_NUM_THREADS=$(if $(filter $@,$(MEASURING)),2,$(THREADS)) \
		$(BIN)/python book/_ext/run_twin.py book/$*.ipynb $@

# Chapter 5 measures speed: it runs after the others, alone, with two threads.
MEASURING := _build/executed/05-message-passing.ipynb
$(MEASURING): | $(filter-out $(MEASURING),$(EXECUTED))

# The same pages are not looked at twice.
_build/looked_at: _build/rendered $(BUILT) tests/browser.py tests/conftest.py pyproject.toml
	@$(BIN)/pytest -q -n $(JOBS) --dist loadgroup $(BUILT) && touch $@

# Always from nothing: Sphinx forgets the warnings of pages that it does not render again.
_build/rendered: $(EXECUTED) $(RENDER_FROM)
	@rm -rf $@ _build/html _build/.doctrees _build/jupyter_execute
	@$(BIN)/python book/_ext/fill_cache.py
	@$(BIN)/jupyter-book build . -W --keep-going --quiet > /dev/null || { rm -rf _build/html _build/.doctrees; exit 1; }
	@touch $@
