# Needs: the configuration. Makes: its checked form, what it selects, and the wildcard constraints.
import os
import shutil
import sys
from pathlib import Path

from profzoo.cell import secret_values
from profzoo.cell import settings
from profzoo.config import (
    configuration,
    imported_reports,
    renamed_settings,
    unknown_targets,
)
from profzoo.compare import sides
from profzoo.cell import data_files
from profzoo import extension_checks, extensions, figures, import_graph, import_statements, schema, tools
from profzoo.workflow import command_line_secrets, snakemake_attributes, up_to_date
from profzoo.collect import environment, completeness, missing_parts, version_changes
from profzoo.tools.ncu import census as ncu_census
from profzoo.tools.nsys import command as nsys
from profzoo.machine import job_limits
from profzoo.machine import orphan_guard
from profzoo.machine import inherited_paths
from profzoo.terminal import missing_cells
from profzoo.range_names import IMPORTED
from profzoo.records import digests
from profzoo.workflow import constraints, imported
from profzoo.workflow.user_errors import run_checked, say

# Jobs import models/ and profzoo/ wherever they run, by the interpreter that runs this.
inherited_paths.make_importable(str(ROOT))
inherited_paths.leave_home_alone()
run_checked(inherited_paths.use_own_python)
orphan_guard.export_owner()

if shutil.which("sbatch"):
    # What the Slurm plugin asks for its jobs' states; profiles/slurm says why.
    inherited_paths.put_first(str(ROOT / "profiles" / "slurm" / "bin"))

import_statements.load_statements()
# Before anything asks what there is. Jobs inherit it from the process that plans them.
if workflow.is_main_process or extensions.PASSED not in os.environ:
    run_checked(extensions.use, config.get("extensions"))
    run_checked(extension_checks.check_extensions)

# Not in place: a module's is part of the configuration of the workflow that uses it.
PLANNED = not workflow.is_main_process
for line in [] if PLANNED else renamed_settings.describe_renamed(config):
    say(f"warning: {line}")
# Of `snakemake import`; jobs of a run have no target, and its words.
TOLD = workflow.config_settings.config
if PLANNED or "import" in sys.argv[1:]:
    config, TOLD = (run_checked(imported_reports.take_words, one) for one in (config, TOLD))
config = run_checked(configuration.normalise_config, config, TOLD, PLANNED)
# From here on placeholders stand for secrets, so that no job's words, files or records hold one.
config = run_checked(secret_values.take, config)
if workflow.is_main_process:
    if lacking := snakemake_attributes.describe_missing():
        say(f"warning: {lacking}")
    run_checked(command_line_secrets.hide_secrets, workflow, secret_values.known_secrets(), say)
MODELS = run_checked(configuration.list_models, config)
UNUSABLE = run_checked(configuration.explain_unusable_models, config)
CELLS = run_checked(configuration.select_cells, config, PLANNED)
SELECTED = list(dict.fromkeys(model for model, _ in CELLS))
RESULTS = workflow.pathvars.get("results")
LOGS = workflow.pathvars.apply("<logs>")
if workflow.is_main_process or environment.PASSED not in os.environ:
    environment.export_environment(config["environment"])
if workflow.is_main_process:
    digests.load_digests(up_to_date.DIGESTS)
    up_to_date.judge_by_content(import_graph.PROJECT, say)
AVAILABLE = imported.available_tools(CELLS, config["tool"], config)
TOOLS = imported.chosen_tools(AVAILABLE, config["tool"])

if MAIN:
    # Snakemake reads this before it knows its targets, so they are taken from the command line.
    run_checked(unknown_targets.check_targets, sys.argv[1:], RESULTS, config)
# Every cell is resolved once here, so that what is wrong with any of them is said before a job runs; by then, what has
# become of a model's file concerns that model's jobs alone.
for model, phase in [] if PLANNED else imported.measured_cells(CELLS):
    for tool in (tools.BASELINE, *TOOLS):
        run_checked(data_files.data_set_folder, run_checked(settings.resolve_cell, model, phase, tool, config))
if workflow.is_main_process:
    if config["collect"]:
        run_checked(
            imported_reports.check_files,
            config["imported"],
            [name for name, _ in imported.imported_cells(CELLS)],
            Path(RESULTS),
        )
    for line in configuration.describe_left_out(config):
        say(f"warning: {line}")


# Cells of several GPUs, which nsys traces into a report for each.
SPREAD = run_checked(configuration.list_multi_gpu_cells, config, sys.argv[1:])
# What `compare` holds against each other.
SIDES = run_checked(sides.sides_of, config)
# A model that bears a variant is a side itself.
COMPARED = [cell for cell in imported.measured_cells(CELLS) if "@" not in cell[0]] if SIDES else []
run_checked(job_limits.export_limits, config, tools.names(), len(COMPARED) * (len(SIDES) - 1))
if MAIN and (SIDES or "compare" in sys.argv[1:]):
    run_checked(
        sides.check_comparable,
        SIDES,
        imported.measured_cells(CELLS) if "compare" in sys.argv[1:] else COMPARED,
        config,
    )


# What a job is measured with was decided where it was planned; nodes of a cluster may have other variables.
envvars:
    environment.PASSED,
    extensions.PASSED,


wildcard_constraints:
    # Also those whose files cannot be used, so that what was made of them is known.
    model=constraints.match_models([*MODELS, *UNUSABLE, *config["imported"]], config["variants"]),
    phase=f"train|inference|{IMPORTED}",
    tool=constraints.match_any(tools.names()),
    set=constraints.match_any(name for tool in tools.with_setting("sets") for name in config[tool]["sets"]),
    report=constraints.match_any(nsys.REPORTS),
    gpu=schema.PATTERN,
