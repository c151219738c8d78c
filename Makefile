# Attention on Edges. `make help` lists the commands; `make book` and `make test` do all set-up themselves.

# Chapters and tests run two at a time with one thread each: small models gain little from a second
# thread, and the figures that chapters print do not depend on the number of cores. THREADS is of tests; a
# notebook's first cell takes one, wherever the notebook is run.
JOBS ?= 2
THREADS ?= 1
DEVICE ?= cpu
# NIGHTLY=1: the tests that take long, too.
export EDGEWISE_NIGHTLY := $(NIGHTLY)

BIN := .venv/bin
STAGE := .ci/stage
PYTEST := $(BIN)/pytest -q --disable-warnings --tb=short -n $(JOBS) --dist worksteal
NBMAKE := $(PYTEST) -p no:cacheprovider --nbmake --overwrite --nbmake-timeout 600
# The tests that read the built book.
BUILT := tests/book/test_book.py
PAGES_FROM := _config.yml _toc.yml $(shell find .pages book code -type f ! -path '*/__pycache__/*' ! -path 'book/*.ipynb' 2>/dev/null)

# Without bytecode, each of the hundred processes to come would compile PyTorch's modules anew.
unexport PYTHONDONTWRITEBYTECODE
export JUPYTER_PREFER_ENV_PATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export IPYTHONDIR := $(CURDIR)/_build/ipython
export PYDEVD_DISABLE_FILE_VALIDATION := 1

MAKEFLAGS += --no-print-directory --silent
.PHONY: help book test more lint chapters notebooks serve screenshots first-cuts artifacts lock clean env

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 18

book: chapters ## build the book into _build/html, running the chapters that changed
	@$(MAKE) _build/html/index.html
	@[ -n "$(QUIET)" ] || echo "The book is _build/html/index.html"

test: ## lint, tests, every chapter, the book and its pages in a browser
	@.ci/install test && date +%s > _build/log/began
	@$(MAKE) lint
	@OMP_NUM_THREADS=$(THREADS) $(STAGE) tests $(PYTEST) tests $(BUILT:%=--ignore=%)
	@$(MAKE) book QUIET=1
	@$(STAGE) "pages in a browser" $(PYTEST) $(BUILT)
	@echo "Everything has passed, in $$(($$(date +%s) - $$(cat _build/log/began))) seconds."

more: env ## the tests that need more: Triton's interpreter, and the corpora that EDGEWISE_DATA names
	@$(STAGE) "installing Triton" $(BIN)/python -m pip install triton
	@OMP_NUM_THREADS=$(THREADS) $(STAGE) "tests that need more" $(PYTEST) -m "triton or corpus" tests

lint: env ## ruff's checks and format; types
	@$(STAGE) "lint and types" sh -c "$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy"

# Chapter 5 measures speed: it runs after the others, alone.
chapters: notebooks
	@$(BIN)/python book/_ext/assemble_pages.py > _build/to-run
	@! grep -q -v 05-message-passing _build/to-run || $(STAGE) "chapters" $(NBMAKE) $$(grep -v 05-message-passing _build/to-run)
	@! grep -q 05-message-passing _build/to-run || $(STAGE) "chapter 5, which measures" $(NBMAKE) -n 0 $$(grep 05-message-passing _build/to-run)

notebooks: env ## regenerate the chapters' twins
	@$(BIN)/python book/_ext/write_notebooks.py

# Always from nothing: Sphinx forgets the warnings of pages that it does not render again.
_build/html/index.html: $(PAGES_FROM)
	@rm -rf _build/html _build/.doctrees _build/jupyter_execute
	@$(STAGE) pages $(BIN)/jupyter-book build .pages --path-output . -W --keep-going --quiet || { rm -rf _build/html; exit 1; }

serve: book ## build the book and show it at http://127.0.0.1:8000
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html 8000

screenshots: book ## pictures of every page for people to look at (PAGES="03 lab" for some)
	@$(BIN)/python tests/browser.py $(PAGES)

first-cuts: env ## what each cut of the home page's sentence does, and which edges are enough
	@$(BIN)/python tests/first_cuts.py

artifacts: env ## retrain every experiment, for hours (DEVICE=cuda, NAMES="copy sort"; SMALL=1: a smoke test)
	@runs=runs; into=book/artifacts; all="sorted(EXPERIMENTS.keys() - LARGE)"; \
	if [ -n "$(SMALL)" ]; then \
		runs=$$(mktemp -d); into=$$runs/artifacts; mkdir $$into; all=EXPERIMENTS; export EDGEWISE_CACHE=$$runs/cache; \
	fi; \
	for name in $${NAMES:-$$($(BIN)/python -c "from attention_on_edges.runs import EXPERIMENTS, LARGE; print(*$$all)")}; do \
		$(BIN)/python -m attention_on_edges train $$name --resume --device $(DEVICE) --out $$runs/$$name $(if $(SMALL),--small) || exit 1; \
		rm -rf $$into/$$name && cp -R $$runs/$$name/artifact $$into/$$name || exit 1; \
	done; \
	echo "The artifacts are in $$into"

# Pins stay as they are unless they have to change; what only torch's CUDA build asks for is left to it.
lock: ## regenerate requirements.txt from pyproject.toml (needs uv; UPGRADE="--upgrade-package torch")
	@mkdir -p _build
	uv pip compile --quiet --universal --python-version 3.11 --no-annotate --all-extras $(UPGRADE) \
		--custom-compile-command "make lock" --output-file requirements.txt pyproject.toml
	grep -v -E '^(cuda-|nvidia-|triton=)' requirements.txt > _build/lock.txt && mv _build/lock.txt requirements.txt

clean: ## remove all that was built; .venv stays
	rm -rf _build .pages .pytest_cache .ruff_cache .hypothesis

# Which Python, uv or pip, which build of PyTorch: .ci/install says.
env:
	@.ci/install
