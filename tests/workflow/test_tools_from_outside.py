"""Tools of an extension in the workflow: one that times is the baseline, one that traces takes the place of nsys."""

import csv
import io

import pytest

from tests.workflow.project import ONE_MODEL, Project

SCHEMA = """\
order: 60
does: [{does}]
type: object
additionalProperties: false
properties:
  window: {{type: integer, default: 2}}
  time_limit: {{type: [string, "null"], default: 1h}}
"""
COMMAND = '"""Times steps as the baseline does."""\n\nfrom profzoo.tools.time.command import program_options as program_options\n'
FILES = '''"""What the tool leaves under results/."""


def table_inputs(own):
    """Tables."""
    return {tables}


def provided_files(own):
    """What other rules read."""
    return {provided}


def name_parts(own):
    """Names between dots."""
    return {parts}
'''
RULE = """\
rule profile_{tool}:
    input:
        sources,
        weights=weights,
    output:
        steps="<results>/{{model}}/{{phase}}.{tool}.csv",
        sidecar="<results>/{{model}}/{{phase}}.{tool}.csv.json",
        {more}
    log:
        "<logs>/{{model}}/{{phase}}.{tool}.log",
    threads: cores()
    resources:
        **on_gpus(),
    params:
        job=JOBS.describe_by("{tool}"),
        more=name_loaded,
        made=name_outputs,
    shell:
        COLLECT
"""
TIMED = {"time": "{phase}.watch.csv", "time_sidecar": "{phase}.watch.csv.json"}
TRACED = {
    "spy": "{phase}.spy.csv",
    "spy_sidecar": "{phase}.spy.csv.json",
    "steps": "{phase}.spy-steps.csv",
    "kernels": "{phase}.kernels.csv",
}
GIVEN = {"launch_times": "{phase}.spy.csv", "replay": "{phase}.replay.csv", "host": "{phase}.host.csv"}
DATABASE = {"trace_database": "{phase}.spy.sqlite", "trace_database_sidecar": "{phase}.spy.csv.json"}


def add_tool(project: Project, tool: str, does: str, tables: dict, provided: dict, more: str = "") -> None:
    """Write the extension lab with one tool, and choose this tool."""
    home = f"lab/tools/{tool}"
    (project.root / home).mkdir(parents=True)
    parts = [tool, f"{tool}-steps", "sqlite", "kernels", "replay", "host"]
    project.write(f"{home}/schema.yaml", SCHEMA.format(does=does))
    project.write(f"{home}/command.py", COMMAND)
    project.write(f"{home}/files.py", FILES.format(tables=tables, provided=provided, parts=parts))
    project.write(f"{home}/{tool}.smk", RULE.format(tool=tool, more=more))
    config = ONE_MODEL.replace("tool: torch", f"tool: [{tool}]")
    project.write("tiny.yaml", f"{config}phases: [train]\nextensions: [lab]\n")


@pytest.mark.slow
def test_a_tool_that_times_is_the_baseline(fresh: Project) -> None:
    add_tool(fresh, "watch", "time", TIMED, {})
    fresh.snakemake("results/tables/cells.csv", "-c1")
    (row,) = csv.DictReader(io.StringIO(fresh.read("results/tables/cells.csv")))
    timed = list(csv.DictReader(io.StringIO(fresh.read("results/lstm/train.watch.csv"))))
    assert row["model"] == "lstm" and int(row["steps"]) == len(timed) == 2
    assert min(int(one["wall_ns"]) for one in timed) <= float(row["step_ns"]) <= max(int(o["wall_ns"]) for o in timed)
    assert "lstm/train.time.csv" not in fresh.files()


@pytest.mark.slow
def test_a_tool_that_traces_takes_the_place_of_nsys(fresh: Project) -> None:
    more = (
        'spy_steps="<results>/{model}/{phase}.spy-steps.csv",\n        sqlite="<results>/{model}/{phase}.spy.sqlite",'
    )
    add_tool(fresh, "spy", "trace", TRACED, GIVEN | DATABASE, more)
    jobs = [job.rule for job in fresh.dry("report", "results/tables/replay.csv")]
    assert {"profile_spy", "join_kernels", "replay_steps", "tabulate_replays"} <= {*jobs}
    assert {f"draw_{name}" for name in ("classes", "launches", "overhead", "ranges", "steps")} <= {*jobs}
    assert "profile_nsys" not in jobs and "export_nsys" not in jobs
