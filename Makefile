# The first commands of a new user. After `. .venv/bin/activate`, snakemake alone is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# 1.5 test processes per core, because tests often wait for the programs that they start.
WORKERS ?= $(shell echo $$((($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2)))
# The locks, by major version of CUDA. CUDA=12 or CUDA=13 chooses one; without it the driver does.
LOCK_12 := requirements-cuda12.lock
LOCK_13 := requirements.lock
# uv installs in a third of pip's time. Where it reaches no packages, pip does, whose configuration uv does not read.
EXACTLY := --quiet --require-hashes --no-deps
# Snakemake starts the `python` that it finds on PATH.
export PATH := $(abspath $(BIN)):$(PATH)
# Without bytecode files, each test process would compile all modules for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: env demo test test-all faults mutants versions lint format docs size site lock other-lock
env: $(READY)

# An environment of another lock than the chosen one is made anew.
$(READY): $(LOCK_12) $(LOCK_13) $(if $(CUDA),$(if $(filter $(LOCK_$(CUDA)),$(file < $(READY))),,other-lock))
	@test ! -L $(VENV) || \
	  { echo '$(VENV) is a link, and make env would clear the folder it points to: remove the link first' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'profzoo needs Python 3.11 or later: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2> /dev/null || \
	  { echo '$(PYTHON) cannot make environments: install venv (Debian and Ubuntu: apt install python3-venv)' >&2; exit 1; }
	@echo 'installing 5.4 GB into $(VENV), which takes a minute or more and prints nothing'
	@lock=$$($(PYTHON) -m profzoo.machine.choose_lock $(CUDA)) && set -x && \
	$(PYTHON) -m venv --clear $(VENV) && \
	sed -n '/^uv==/,/[^\\]$$/p' "$$lock" > $(VENV)/uv.txt && \
	$(BIN)/python -m pip install $(EXACTLY) --disable-pip-version-check -r $(VENV)/uv.txt && \
	{ $(BIN)/uv pip install $(EXACTLY) --python $(BIN)/python -r "$$lock" || \
	  $(BIN)/python -m pip install $(EXACTLY) --disable-pip-version-check -r "$$lock"; } && \
	printf '%s\n' '#!$(abspath $(BIN))/python' 'import sys' 'sys.path.insert(0, "$(CURDIR)")' \
	  'from profzoo.__main__ import main' 'sys.exit(main())' > $(BIN)/profzoo && chmod +x $(BIN)/profzoo && \
	echo "$$lock" > $@

demo: $(READY)  ## profile three models with torch.profiler, on the GPU or CPU of this machine
	snakemake report --configfile config/quickstart.yaml
	@echo "report:  $(CURDIR)/results/report.html"
	@echo "figures: $(CURDIR)/results/figures/"
	@echo "next:    . $(VENV)/bin/activate, and then lines of README.md with --configfile config/quickstart.yaml"

test: $(READY)  ## run the tests, but not those marked slow; ARGS='-k lstm' selects some
	python -m pytest -n $(WORKERS) -m 'not slow and not faults' $(ARGS)

test-all: $(READY)  ## run the tests with those marked slow, which take longer than all others
	python -m pytest -n $(WORKERS) $(ARGS)

faults: $(READY)  ## run fault tests that take minutes; then, for MINUTES, faults drawn by SEED (KINDS=kill,power)
	python -m pytest -n auto -m faults $(ARGS)
	python -m tests.faults.random_faults --minutes $(or $(MINUTES),60) --seed $(or $(SEED),0) $(if $(KINDS),--kinds $(KINDS))

mutants: $(READY)  ## plant COUNT mistakes drawn by SEED in code that derives numbers; print those that no test finds
	python -m tests.mutation.run --count $(or $(COUNT),300) $(if $(SEED),--seed $(SEED)) $(ARGS)

versions: $(READY)  ## run tests and two models with each supported release of torch, Python and Snakemake; ROWS chooses
	python -m tests.version_matrix $(ROWS)

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

docs: $(READY)  ## generate config/README.md, five pages, the types of settings, and the picture of the rules
	python -m profzoo.document.config config/README.md
	python -m profzoo.document.zoo docs/reference/zoo.md
	python -m profzoo.document.sets docs/reference/sections.md
	python -m profzoo.document.verdicts docs/guides/verdicts.md
	python -m profzoo.document.python_types profzoo/cell
	python -m profzoo.document.columns docs/reference/columns.md
	python -m tests.benchmarks.advisor_truth --page docs/measured/advisors.md
	snakemake report --rulegraph dot --config models=lstm phases=train tool=nsys,torch --directory build/rules \
	  | python -m profzoo.document.rule_picture docs/pictures/rules.svg

size: $(READY)  ## print how large each feature is, beside the budget of features.yaml
	python -m tests.tools.size

# mkdocs has an environment of its own: what measures does not depend on what shows the documentation.
SITE := build/site-env
$(SITE)/.ready: pyproject.toml
	$(PYTHON) -m venv --clear $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check $$($(PYTHON) -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["docs"])')
	touch $@

site: $(SITE)/.ready  ## build the documentation into build/site; a broken link or a page without a place is an error
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --quiet --strict

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra cluster --group dev \
  --custom-compile-command 'make lock' --constraint - pyproject.toml --output-file

lock: $(READY)  ## write both locks from pyproject.toml; all that does not come with torch is the same in both
	echo 'torch==2.11.*' | $(COMPILE) $(LOCK_13)
	cp $(LOCK_13) $(LOCK_12)
	echo 'torch==2.10.*' | $(COMPILE) $(LOCK_12)
