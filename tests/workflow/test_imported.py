"""Reports made elsewhere, through to tables, verdicts and page: of each tool, alone and joined; and what is refused."""

import csv
import gzip
import json
import math
import re
import shutil
from pathlib import Path

import pytest

from profzoo.cli import share
from profzoo.io.scripts import read_json
from profzoo.records import import_graph
from profzoo.results import Results
from profzoo.tables import schemas
from tests import recorded_results
from tests.conftest import DATA
from tests.workflow.project import Project, copy, rules

CONFIG = {
    "traced": {"torch": "lstm.trace.json.gz"},
    "joined": {"nsys": "train.sqlite", "ncu": ["page.csv"]},
    "summed": {"nsys": "sum.csv"},
}


def imported(root: Path, *names: str) -> tuple[Project, str]:
    """A copy with reports of all tools, of which these are imported, and what the run said."""
    project = copy(root, json.dumps({"models": ["imported"], "imported": {name: CONFIG[name] for name in names}}))
    # Of a program that knows nothing of profzoo.
    with gzip.open(DATA / "torch/train.trace.json.gz") as file:
        trace = json.load(file)
    trace["traceEvents"] = [one for one in trace["traceEvents"] if not str(one.get("name")).startswith("profzoo:")]
    (root / "lstm.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    for packed, name in (("nsys/train.sqlite.gz", "train.sqlite"), ("ncu/launch.raw.demangled.csv.gz", "page.csv")):
        with gzip.open(DATA / packed) as source, (root / name).open("wb") as target:
            shutil.copyfileobj(source, target)
    shutil.copyfile(DATA / "nsys/cuda_gpu_kern_sum.csv", root / "sum.csv")
    project.draw_one()
    said = project.snakemake("report", "import")
    return project, said.stdout + said.stderr


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    return imported(tmp_path_factory.mktemp("one") / "project", "traced")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    return imported(tmp_path_factory.mktemp("imported") / "project", *CONFIG)


def test_a_trace_has_its_tables_and_the_page_says_what_it_is(one: tuple[Project, str]) -> None:
    project, said = one
    results = project.root / "results"
    (cell,) = schemas.read_table("cells", results / "tables/cells.csv").to_dict("records")
    assert (cell["model"], cell["phase"], cell["steps"]) == ("traced", "imported", 3)
    assert math.isnan(cell["batch"]) and math.isnan(cell["items_per_s"]) and "3 step(s) from ProfilerStep" in said
    page = (results / "report.html").read_text()
    assert "Made elsewhere" in page and "steps: ProfilerStep, as torch.profiler saw them" in page
    assert "models.run traced" not in page and "--config models=traced" not in page
    shown = [line for line in said.splitlines() if "imported: " in line and "per step" in line]
    assert shown and not any(re.search(r"\b(graph|compile|batch)=", line) for line in shown)
    sidecar = read_json(results / "traced/imported.trace.json.gz.json")
    assert sidecar["imported"]["files"][0]["file"] == "lstm.trace.json.gz"
    (project.root / "lstm.trace.json.gz").rename(project.root / "moved.json.gz")
    assert project.dry("report") == []


@pytest.mark.slow
def test_reports_of_all_tools_have_their_tables(ran: tuple[Project, str]) -> None:
    results = ran[0].root / "results"
    cells = schemas.read_table("cells", results / "tables/cells.csv").set_index("model")
    assert set(cells["phase"]) == {"imported"} and cells["batch"].isna().all() and cells["items_per_s"].isna().all()
    assert cells.loc["traced", "steps"] == 3 and cells.loc["joined", "steps"] == 10
    assert "it is a summary" in (results / "report.html").read_text()


@pytest.mark.slow
def test_the_notebook_answers_from_imports_alone(ran: tuple[Project, str], tmp_path: Path) -> None:
    """Its cell is the one with layers, or with the longest step; trials and other runs are named, not asked for."""
    notebook = import_graph.PROJECT / "docs/notebooks/ten_questions.ipynb"
    printed = recorded_results.run_notebook(notebook, ran[0].root / "results", tmp_path)
    cells = schemas.read_table("cells", ran[0].root / "results/tables/cells.csv")
    chosen = printed[1].split()[0]
    assert chosen in set(cells["model"]) and printed[1].split()[1] == "imported" and "%" in printed[2]
    assert "`snakemake trials" in printed[5] and "makes it" in printed[5]
    widths = ((cells["step_high_ns"] - cells["step_low_ns"]) / cells["step_ns"]).dropna()
    assert printed[-2].startswith(f"intervals are {widths.median():.0%} of the step wide")


@pytest.mark.slow
def test_verdicts_are_given_on_what_was_traced(ran: tuple[Project, str]) -> None:
    results = ran[0].root / "results"
    with (results / "tables/verdicts.csv").open() as file:
        verdicts = list(csv.DictReader(file))
    found = {row["model"]: row["verdict"] for row in verdicts if row["level"] == "cell" and row["rank"] == "1"}
    assert found["traced"] == "launch-bound" and found["joined"] == "launch-bound"


@pytest.mark.slow
def test_times_and_counters_join_by_kernel(ran: tuple[Project, str]) -> None:
    results = ran[0].root / "results"
    kernels = schemas.read_table("kernels", results / "tables/kernels.csv")
    joined = kernels[kernels["model"] == "joined"]
    # The page has no shared memory, by which profzoo tells launches apart: it is the trace's where that has one alone.
    counted = joined[joined["source"] == "nsys+ncu"]
    assert 0 < len(counted) < len(joined) and counted["ncu_ns"].gt(0).all()
    assert counted["share"].sum() > 0.3
    assert kernels[kernels["model"] == "summed"]["share"].sum() == pytest.approx(1)


@pytest.mark.slow
def test_tables_of_reports_are_exported_too(ran: tuple[Project, str]) -> None:
    project, _ = ran
    planned = rules(project.dry("import", "--config", "export=json"))
    assert "convert_tables" in planned and planned <= {
        "convert_tables",
        "import",
        "tabulate_replays",
        "tabulate_fusion",
    }


@pytest.mark.slow
def test_files_are_left_alone_and_nothing_runs_again(ran: tuple[Project, str]) -> None:
    project, _ = ran
    sidecar = read_json(project.root / "results/joined/imported.nsys-rep.json")
    assert sidecar["imported"]["files"][0]["file"] == "train.sqlite"
    (project.root / "train.sqlite").rename(project.root / "moved.sqlite")
    assert project.dry("report") == []
    (project.root / "moved.sqlite").rename(project.root / "train.sqlite")


@pytest.mark.slow
def test_what_cannot_be_used_ends_in_one_line(ran: tuple[Project, str]) -> None:
    project, _ = ran
    (project.root / "other.json").write_text('{"nodes": []}')
    refused = project.snakemake("import", "--config", "torch=other.json", "name=wrong", ok=False)
    said = refused.stdout + refused.stderr
    assert refused.returncode and "other.json is not a trace of torch.profiler" in said and "Traceback" not in said
    missing = project.snakemake("import", "--dry-run", "--config", "torch=gone.json", ok=False)
    lines = [line for line in (missing.stdout + missing.stderr).splitlines() if "gone.json" in line]
    assert missing.returncode and "imported.gone.torch = 'gone.json': the file does not exist" in lines[0]


@pytest.mark.slow
def test_what_was_imported_can_be_found_and_shared(ran: tuple[Project, str]) -> None:
    results = ran[0].root / "results"
    assert Results(results).all_cells() == [(name, "imported") for name in ("joined", "summed", "traced")]
    shared = {path.as_posix() for path in share.list_shareable(results)}
    assert {"traced/imported.torch.csv", "joined/imported.nsys.csv", "tables/kernels.csv"} <= shared
