# Needs: the configuration, checked(). Makes: its checked form, what it selects, and the wildcard constraints.
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from profzoo.cell import secret_values
from profzoo.cell import registry
from profzoo.cell import settings
from profzoo.cell.process_count import process_count
from profzoo.config import configuration, unknown_targets
from profzoo.compare import sides
from profzoo.cell import data_files
from profzoo import figures, import_graph, planning, schema, snakemake_internals, tools
from profzoo.collect import environment, completeness, missing_parts, transaction, version_changes
from profzoo.tools.ncu import census as ncu_census
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.tools.nsys import command as nsys
from profzoo.machine import job_limits
from profzoo.machine import orphan_guard
from profzoo.machine import inherited_paths
from profzoo.terminal import missing_cells
from profzoo.records import digests
from profzoo.trials import candidate_settings


def say(line):
    """Tell whoever started the run."""
    print(f"profzoo: {line}", file=sys.stderr)


# Jobs import models/ and profzoo/ wherever they run, by the interpreter that runs this.
inherited_paths.make_importable(str(ROOT))
inherited_paths.leave_home_alone()
checked(inherited_paths.use_own_python)
orphan_guard.export_owner()

if shutil.which("sbatch"):
    # What the Slurm plugin asks for its jobs' states; profiles/slurm says why.
    inherited_paths.put_first(str(ROOT / "profiles" / "slurm" / "bin"))

# Not in place: a module's is part of the configuration of the workflow that uses it.
PLANNED = not workflow.is_main_process
config = checked(configuration.normalise_config, config, workflow.config_settings.config, PLANNED)
# From here on placeholders stand for secrets, so that no job's words, files or records hold one.
config = checked(secret_values.take, config)
if workflow.is_main_process:
    checked(snakemake_internals.conceal, workflow, secret_values.known_secrets(), say)
MODELS = checked(configuration.list_models, config)
UNUSABLE = checked(configuration.explain_unusable_models, config)
CELLS = checked(configuration.select_cells, config, PLANNED)
SELECTED = list(dict.fromkeys(model for model, _ in CELLS))
RESULTS = workflow.pathvars.get("results")
LOGS = workflow.pathvars.apply("<logs>")
checked(job_limits.export_limits, config, tools.names())
if workflow.is_main_process or environment.PASSED not in os.environ:
    environment.export_environment(config["environment"])
if workflow.is_main_process:
    digests.load_digests(planning.DIGESTS)
    snakemake_internals.judge_by_content(import_graph.PROJECT, say)
TOOLS = [tool for tool in config["tool"] if tool != tools.BASELINE]

if MAIN:
    # Snakemake reads this before it knows its targets, so they are taken from the command line.
    checked(unknown_targets.check_targets, sys.argv[1:], RESULTS, config)
# Every cell is resolved once here, so that what is wrong with any of them is said before a job runs; by then, what has
# become of a model's file concerns that model's jobs alone.
for model, phase in [] if PLANNED else CELLS:
    for tool in (tools.BASELINE, *TOOLS):
        checked(data_files.data_set_folder, checked(settings.resolve_cell, model, phase, tool, config))
if workflow.is_main_process:
    for line in configuration.describe_left_out(config):
        print(f"profzoo: warning: {line}", file=sys.stderr)


def any_of(names):
    """A regular expression that matches exactly these names."""
    return "|".join(map(re.escape, names))


# Cells of several GPUs, which nsys traces into a report for each.
SPREAD = checked(configuration.list_multi_gpu_cells, config, sys.argv[1:])
# What `compare` holds against each other.
SIDES = checked(sides.sides_of, config)
# A model that bears a variant is a side itself.
COMPARED = [cell for cell in CELLS if "@" not in cell[0]] if SIDES else []
if MAIN and (SIDES or "compare" in sys.argv[1:]):
    checked(sides.check_comparable, SIDES, CELLS if "compare" in sys.argv[1:] else COMPARED, config)


one_of_variants = f"({any_of(config['variants'])})"


# What a job is measured with was decided where it was planned; nodes of a cluster may have other variables.
envvars:
    environment.PASSED,


wildcard_constraints:
    # Also those whose files cannot be used, so that what was made of them is known.
    model=f"({any_of([*MODELS, *UNUSABLE])})(@{one_of_variants}([+]{one_of_variants})*)?",
    phase="train|inference",
    tool=any_of(tools.names()),
    set=any_of(config["ncu"]["sets"]),
    report=any_of(nsys.REPORTS),
    gpu=schema.PATTERN,
