"""What documents, page, terminal and messages have a user type after the demo: it runs here, and acts on the demo's cells."""

import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
import yaml

from profzoo import verdicts
from profzoo.cell import rerun_commands
from profzoo.plans import plan, plan_table
from profzoo.report import page
from profzoo.report.savings import list_run_arguments
from profzoo.terminal import run_end
from tests import cpu_page, slow
from tests.workflow import forked
from tests.workflow.project import CHECKOUT, Project

NO_GPU = pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="of machines without a GPU")
DEMO = "--configfile config/quickstart.yaml"
PAGES = ("README.md", "docs/reference/terminal.md")
LINES = [
    line.partition("  #")[0].strip()
    for page in PAGES
    for line in (CHECKOUT / page).read_text().splitlines()
    if line.startswith("snakemake ") and DEMO in line
]


def dry(project: Project, words: list[str]) -> tuple[set[str], str]:
    """The models of which a dry run would make anything, and its output."""
    run = forked.snakemake([*words, *(["-n"] if "-n" not in words else [])], project.root, project.environment())
    said = run.stderr + run.stdout
    assert run.returncode == 0, said
    models = re.search(r"^  models: (.*)$", said, re.MULTILINE)
    return set(models[1].split(", ")) if models else set(), said


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_line_after_the_demo_is_of_its_cells(untouched: Project, line: str) -> None:
    demo = yaml.safe_load((CHECKOUT / "config/quickstart.yaml").read_text())["models"]
    models, said = dry(untouched, shlex.split(line)[1:])
    assert models and models <= set(demo)
    cells = re.search(r"^(\d+) cells?, ", said, re.MULTILINE)
    assert cells and int(cells[1]) <= 2 * len(demo)
    assert not re.search(r"about [\d.]+ h", said)


@NO_GPU
@pytest.mark.parametrize("tool", slow.first(["ncu", "nsys"]))
def test_a_dry_run_of_a_profiler_that_cannot_run_here_says_why(untouched: Project, tool: str) -> None:
    untouched.path = ()
    _, said = dry(untouched, ["all", "--config", "models=lstm", f"tool={tool}"])
    why = {
        "ncu": "because it profiles GPUs only, and there is no GPU",
        "nsys": "because it is not on PATH: install NVIDIA Nsight",
    }
    assert re.search(rf"^2 cells, {tool}: cannot run here$", said, re.MULTILINE)
    assert said.count(f"{tool} cannot run here, {why[tool]}") == 1 and "on this CPU" not in said


def offered(text: str) -> list[str]:
    """The commands in a printed text or in the code of a page, each once; comments after them are left out."""
    text = unescape(re.sub(r"</?(?:code|span|p)\b[^>]*>", "`", text))
    found = re.findall(r"(?:^ *|[`:] ?)((?:snakemake|python -m|torchrun) [^`\n]*)", text, re.MULTILINE)
    plain = (re.split(r"  +| makes |\.$", one.strip())[0] for one in found)
    return list(dict.fromkeys(one for one in plain if not any(mark in one for mark in PLACEHOLDERS)))


# Words that stand for what a user puts there.
PLACEHOLDERS = ("FILE", "NAME", "...")
# A help text lists commands for every machine; the last lines of it are for this one.
HERE = "On this machine, which has no GPU:"
SCRIPT = """\
import torch

network = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(network.parameters(), 0.01)
for _ in range(40):
    optimizer.zero_grad()
    network(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""


def run_or_plan(project: Project, command: str) -> str:
    """Run a command as it is typed, in the folder and under the surroundings of whoever printed it.

    What snakemake makes is planned with -n, because measurements take minutes; everything else is run.
    """
    words = shlex.split(command)
    plans = words[0] == "snakemake" and not {"help", "doctor", "status", "verify"} & set(words)
    words = [sys.executable, "-m", *words] if words[0] == "snakemake" else [sys.executable, *words[1:]]
    run = subprocess.run(
        [*words, *(["-n"] if plans else [])], cwd=project.root, env=project.environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, f"{command}\n{run.stdout}"
    assert "cannot run here" not in run.stdout, f"{command}\n{run.stdout}"
    return run.stdout


@pytest.mark.slow
@NO_GPU
def test_what_advise_shows_for_a_workflow_runs_here(fresh: Project) -> None:
    """Its lines name the tools that can run here."""
    fresh.write("train.py", SCRIPT)
    shown = subprocess.run(
        [sys.executable, "-m", "profzoo", "advise", "--show-config", "--", "python", "train.py"], cwd=fresh.root,
        env=fresh.environment(), text=True, capture_output=True, check=True,
    ).stdout  # fmt: skip
    (name,) = yaml.safe_load(shown)["models"]
    fresh.write("config/config.yaml", shown)
    for command in (f"snakemake results/{name}/train.torch.csv", "snakemake report"):
        assert re.search(r"^1 cell, torch: about ", run_or_plan(fresh, command), re.MULTILINE), command


def offers_of_cells(project: Project) -> tuple[list[str], list[str]]:
    """The commands on a page of made-up tables of a CPU's cells, and those in the terminal about the same tables.

    The cells are those of the project, with their settings; the made-up times allow verdicts on a busy machine, too.
    """
    tables = {name: table.assign(model="lstm") for name, table in cpu_page.tables().items() if "model" in table}
    known = list_run_arguments(pd.read_csv(project.root / "results/tables/cells.csv", keep_default_na=False))
    tables["cells"] = tables["cells"].assign(arguments=[known["lstm", phase] for phase in cpu_page.PHASES])
    ends = {"gain": 1.6, "gain_low": 1.0, "gain_high": 1.7, "outlook": plan.MAY_NOT_HELP, "method": verdicts.AMDAHL}
    row = {**dict.fromkeys(plan_table.COLUMNS, ""), **ends, "model": "lstm", "phase": "train", "rank": 1}
    doubled = {"settings": "batch=6", "changes": "put 6 data samples into a batch"}
    command = rerun_commands.comparison_command(known["lstm", "train"], "batch=6")
    tables["plans"] = pd.DataFrame([row | doubled | {"command": command}])
    sidecars = [{"torch": "2.9.0", "cuda": None, "device_why": "no GPU found"}] * 2
    html = page.render_page(tables, sidecars, [], ["torch"], project.root / "results")
    for name in ("cells", "verdicts", "plans"):
        tables[name].to_csv(project.root / f"{name}.csv", index=False)
    made = {rule: [str(project.root / f"{name}.csv")] for rule, name in
            ((run_end.VERDICTS_RULE, "verdicts"), (run_end.PLANS_RULE, "plans"))}  # fmt: skip
    return offered(html), offered("\n".join(run_end.format_answer(made, 100)))


@NO_GPU
@pytest.mark.slow
def test_what_page_terminal_and_messages_offer_runs_here(built: Project) -> None:
    on_page, answer = offers_of_cells(built)
    assert {shlex.split(one)[1] for one in on_page} >= {"trials", "compare"}, on_page
    assert answer and {*answer} <= {*on_page}
    printed = built.snakemake("help").stdout
    assert HERE in printed
    doctor = offered(built.snakemake("doctor").stdout)
    helped = offered(printed.partition(HERE)[2])
    assert helped == ["snakemake report --config tool=torch"]
    messages = subprocess.run(
        [sys.executable, "-c", MESSAGES], cwd=built.root, env=built.environment(), text=True, capture_output=True, check=True
    ).stdout  # fmt: skip
    told = [line for line in messages.splitlines() if "on a machine with a GPU" not in line]
    assert len(told) < len(messages.splitlines()) and offered("\n".join(told))
    for command in dict.fromkeys([*on_page, *doctor, *helped, *offered("\n".join(told))]):
        run_or_plan(built, command)


# Prints what is said of each table that the results lack.
MESSAGES = """
import profzoo
from profzoo.results import MissingError, _names
results = profzoo.load("results")
for name in _names():
    try:
        results.tables[name]
    except MissingError as error:
        print(error)
"""
