# The first commands of a new user. After `. .venv/bin/activate`, snakemake alone is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# 1.5 test processes per core, because tests often wait for the programs that they start.
WORKERS ?= $(shell echo $$((($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2)))
# Snakemake starts the `python` that it finds on PATH.
export PATH := $(abspath $(BIN)):$(PATH)
# Without bytecode files, each test process would compile all modules for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: env demo test faults mutants lint format docs lock
env: $(READY)

$(READY): requirements.lock
	@test ! -L $(VENV) || \
	  { echo '$(VENV) is a link, and make env would clear the folder it points to: remove the link first' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'profzoo needs Python 3.11 or later: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2> /dev/null || \
	  { echo '$(PYTHON) cannot make environments: install venv (Debian and Ubuntu: apt install python3-venv)' >&2; exit 1; }
	@echo 'installing 5.4 GB into $(VENV), which takes some minutes and prints nothing'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	touch $@

demo: $(READY)  ## profile three models with torch.profiler, on the GPU or CPU of this machine
	snakemake report --configfile config/quickstart.yaml
	@echo "report:  $(CURDIR)/results/report.html"
	@echo "figures: $(CURDIR)/results/figures/"
	@echo "next:    . $(VENV)/bin/activate, and then lines of README.md with --configfile config/quickstart.yaml"

test: $(READY)  ## run the tests; ARGS='-k lstm' selects some
	python -m pytest -n $(WORKERS) $(ARGS)

faults: $(READY)  ## run fault tests that take minutes; then, for MINUTES, faults drawn by SEED (KINDS=kill,power)
	python -m pytest -n auto -m faults $(ARGS)
	python -m tests.faults.random_faults --minutes $(or $(MINUTES),60) --seed $(or $(SEED),0) $(if $(KINDS),--kinds $(KINDS))

mutants: $(READY)  ## plant COUNT mistakes drawn by SEED in code that derives numbers; print those that no test finds
	python -m tests.mutation.run --count $(or $(COUNT),300) $(if $(SEED),--seed $(SEED)) $(ARGS)

lint: $(READY)  ## check formatting, lint and types, as CI does
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow
	mypy models profzoo workflow/scripts profiles
	snakemake --lint

format: $(READY)
	ruff check --fix .
	ruff format .
	snakefmt Snakefile workflow

docs: $(READY)  ## generate config/README.md, docs/zoo.md, docs/sections.md, docs/columns.md and the types of settings
	python -m profzoo.document.config config/README.md
	python -m profzoo.document.zoo docs/zoo.md
	python -m profzoo.document.sets docs/sections.md
	python -m profzoo.document.python_types profzoo/cell
	python -m profzoo.document.columns docs/columns.md

lock: $(READY)  ## write requirements.lock from pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra cluster --group dev \
	  --custom-compile-command 'make lock' pyproject.toml --output-file requirements.lock
