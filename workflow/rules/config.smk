# Needs: the configuration. Makes: its checked form, the selected cells and tools, and the wildcard constraints.
import os
import shutil
import sys
from pathlib import Path

from profzoo.cell import secret_values
from profzoo.cell import settings
from profzoo.config import configuration, imported_reports
from profzoo.compare import sides
from profzoo.cell import data_files
from profzoo.workflow import extension_checks
from profzoo import extensions, figures, tools
from profzoo.records import import_graph
from profzoo.cell import schema
from profzoo.workflow import command_lines, jobs, joint_rules, snakemake_internals, up_to_date
from profzoo.collect import environment, partial_report, version_changes
from profzoo.tools.ncu import census as ncu_census
from profzoo.tools.nsys import command as nsys
from profzoo.machine import job_limits
from profzoo.machine import job_child
from profzoo.machine import inherited_paths
from profzoo.terminal.run_end import list_missing, list_taken
from profzoo.range_names import IMPORTED
from profzoo.records import digests
from profzoo.workflow import patterns, imported
from profzoo.errors import run_checked, say

# Jobs in any folder can import models/ and profzoo/, and use the interpreter that runs this file.
inherited_paths.make_importable(str(ROOT))
inherited_paths.leave_home_alone()
run_checked(inherited_paths.use_own_python)
job_child.export_owner()

if shutil.which("sbatch"):
    # The Slurm plugin asks this folder's program for the states of jobs; profiles/slurm says why.
    inherited_paths.put_first(str(ROOT / "profiles" / "slurm" / "bin"))

import_graph.load_statements()
# Extensions must be known before anything lists figures, tools or models. Jobs inherit them from the planning process.
if workflow.is_main_process or extensions.PASSED not in os.environ:
    run_checked(extensions.use, config.get("extensions"))
    run_checked(extension_checks.check_extensions)

# The steps below make new mappings, because a module's configuration is part of the configuration of its user.
PLANNED = not workflow.is_main_process
# Words of `snakemake import` become entries of `imported`. Jobs of a run have these words, but not the target.
TOLD = workflow.config_settings.config
if PLANNED or "import" in sys.argv[1:]:
    config, TOLD = (run_checked(imported_reports.take_words, one) for one in (config, TOLD))
config = run_checked(configuration.normalise_config, config, TOLD, PLANNED)
RUNS_HERE = snakemake_internals.runs_here(workflow)
# From here on, placeholders replace secrets, so that no job's command line, files or records contain one.
config = run_checked(secret_values.take, config)
if workflow.is_main_process:
    if lacking := snakemake_internals.describe_missing():
        say(f"warning: {lacking}")
    run_checked(command_lines.hide_secrets, workflow, secret_values.known_secrets(), RUNS_HERE, say)
MODELS = run_checked(configuration.list_models, config)
UNUSABLE = run_checked(configuration.explain_unusable_models, config)
CELLS = run_checked(configuration.select_cells, config, PLANNED)
SELECTED = list(dict.fromkeys(model for model, _ in CELLS))
RESULTS = workflow.pathvars.get("results")
LOGS = workflow.pathvars.apply("<logs>")
if workflow.is_main_process or environment.PASSED not in os.environ:
    environment.export_environment(config["variables"])
if workflow.is_main_process:
    snakemake_internals.before_jobs_here(workflow, lambda: jobs.fork_early(sys.argv[1:], RUN))
# In all processes that run jobs.
snakemake_internals.keep_old_outputs(up_to_date.leaves_record)
snakemake_internals.shorten_script_interrupts()
if workflow.is_main_process:
    digests.load_digests(up_to_date.DIGESTS)
    up_to_date.judge_by_content(
        import_graph.PROJECT,
        say,
        lambda sidecar: (
            version_changes.describe_changes(sidecar, workflow.local_exec)
            if config["environment"] == version_changes.MEASURE
            else ""
        ),
    )
AVAILABLE = imported.available_tools(CELLS, config["tool"], config)
TOOLS = imported.chosen_tools(AVAILABLE, config["tool"])

if MAIN:
    # Snakemake reads this file before it knows its targets, so the targets are taken from the command line.
    run_checked(configuration.check_targets, sys.argv[1:], RESULTS, config)
# Every cell is resolved once here, so that errors in any cell are reported before a job runs. Jobs (PLANNED) leave this
# out, because a model's file that has changed since then concerns only that model's jobs.
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


# Cells on several GPUs, for which nsys writes one report per process.
SPREAD = run_checked(configuration.list_multi_gpu_cells, config, sys.argv[1:])
# The sides that `compare` compares.
SIDES = run_checked(sides.sides_of, config)
# A selected model with a variant is not compared, because variants are sides themselves.
COMPARED = [cell for cell in imported.measured_cells(CELLS) if "@" not in cell[0]] if SIDES else []
run_checked(job_limits.export_limits, config, tools.names(), len(COMPARED) * (len(SIDES) - 1))
if MAIN and (SIDES or "compare" in sys.argv[1:]):
    run_checked(
        sides.check_comparable,
        SIDES,
        imported.measured_cells(CELLS) if "compare" in sys.argv[1:] else COMPARED,
        config,
    )


# The planning process decides about these variables, and jobs get its values; nodes of a cluster may have other values.
envvars:
    environment.PASSED,
    extensions.PASSED,


wildcard_constraints:
    # Models with unusable files are included, so that their existing results are still recognised.
    model=patterns.match_models([*MODELS, *UNUSABLE, *config["imported"]], config["variants"]),
    phase=f"train|inference|{IMPORTED}",
    tool=patterns.match_any(tools.names()),
    set=patterns.match_any(name for tool in tools.with_setting("sets") for name in config[tool]["sets"]),
    report=patterns.match_any(nsys.REPORTS),
    gpu=schema.PATTERN,
