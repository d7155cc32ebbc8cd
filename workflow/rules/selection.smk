# Needs: the configuration, and what it selects. Makes: functions for inputs, params and resources, which rules call.
from functools import partial

from snakemake.settings.types import DeploymentMethod

from profzoo.workflow import imported, patterns, tables
from profzoo.workflow.command_lines import (
    COLLECT,
    KEEP,
    name_failing,
    name_loaded,
    name_loaded_of_sides,
    name_outputs,
    name_tables,
    quote_reports,
)
from profzoo.workflow.comparison import Comparison
from profzoo.workflow.jobs import Jobs
from profzoo.workflow.pages import Pages, code_of_figures
from profzoo.workflow.jobs import JobResources
from profzoo.workflow.jobs import SectionSetJobs
from profzoo.workflow.section_sets import SectionSets
from profzoo.workflow.selection import Selection
from profzoo.workflow.selection import SourceFiles
from profzoo.workflow.tables import Tables
from profzoo.workflow.tables import TorchFiles
from profzoo.workflow.tables import user_range_inputs, user_range_tables

ASKED = Selection(
    config=config,
    cells=CELLS,
    tools=TOOLS,
    available=AVAILABLE,
    results=RESULTS,
    lost=partial_report.read_missing(os.environ.get(partial_report.COMPLETENESS_WITHOUT)),
    sides=SIDES,
    compared=COMPARED,
    spread=SPREAD,
)
# With `collect: true` all selected results can be made. Otherwise only existing files are available.
RUN, LACKING = imported.find_available(ASKED, Path(LOGS), os.environ.get(partial_report.COMPLETENESS_WITHOUT))
# A run that makes a partial report for another run prints no warnings, because the other run reports them.
if workflow.is_main_process and partial_report.COMPLETENESS_WITHOUT not in os.environ:
    for line in list_missing(LACKING):
        say(f"warning: {line}")
    if not config["collect"]:
        required = patterns.required_files(config, TOOLS)
        for line in list_taken(imported.measured_cells(CELLS), required, Path(RESULTS), config):
            say(f"warning: {secret_values.mask_secrets(line)}")
LACKING = [*LACKING, *partial_report.missing_rows(RUN.lost)]

# With `collect: false` this check is left out, because results may come from other machines.
if MAIN and workflow.is_main_process and config["collect"]:
    CHANGED = version_changes.version_messages(
        RESULTS,
        SELECTED,
        [tools.BASELINE, *TOOLS],
        RUNS_HERE,
        sys.argv[1:],
        config["environment"],
    )
    for line in CHANGED:
        say(secret_values.mask_secrets(line))
    if CHANGED and config["environment"] == version_changes.FAIL:
        sys.exit(version_changes.FAILED_CODE)

SOURCES = SourceFiles(config, MAIN, local)
IMPORTS = imported.Imports(config, RESULTS)
JOBS = Jobs(RUN)
SET_JOBS = SectionSetJobs(JOBS)
TORCH_FILES = TorchFiles(config)
SETS = SectionSets(
    RUN,
    lambda **cell: checkpoints.export_launches.get(**cell),
    ancient,
    lambda: workflow.dryrun,
)
TABLES = Tables(RUN, SETS)
# Above that of ncu's jobs, where a first plan is told before they end.
PRIORITY_OF_FIRST = 4 if TABLES.first_plans() else 0
# Of one cell, nsys comes before all, as its process imports torch while the process does that forks the other jobs.
PRIORITY_OF_NSYS = max(2, PRIORITY_OF_FIRST + (len(AVAILABLE) == 1))
COMPARISON = Comparison(RUN)
PAGES = Pages(RUN, TABLES, COMPARISON)
RESOURCES = JobResources(
    JOBS,
    "gpu" in workflow.global_resources,
    DeploymentMethod.ENV_MODULES in workflow.deployment_settings.deployment_method,
)

# Functions that most rules call.
code, sources, weights = SOURCES.of_code, SOURCES.of_model, JOBS.weights
light, on_gpus, on_one_gpu = RESOURCES.light, RESOURCES.on_gpus, RESOURCES.on_one_gpu
cores, cores_of_one, modules = RESOURCES.cores, RESOURCES.cores_of_one, RESOURCES.modules
table = partial(tables.label_table, report)


resource_scopes:
    # Limits the jobs of one group that run at the same time; jobs outside the group are not affected.
    side_by_side="local",
