"""The whole path of a real Nsight Systems, which needs no GPU: trace, SQLite, CSV, reports."""

import csv
import gzip
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.machine import namespace
from profzoo.range_names import DOMAIN, MODULE, PARTS, STEP, WINDOW, make_nvtx_name
from profzoo.report import packed_blocks
from profzoo.tables import schemas
from profzoo.tools.nsys import command
from profzoo.tools.nsys.host import host_schema
from profzoo.tools.nsys.over_time import gpu_memory, gpu_metrics
from profzoo.tools.nsys.pictures import tracks
from profzoo.tools.nsys.steps import streams
from profzoo.what_if import program
from profzoo.what_if import tables as replay
from tests import slow
from tests.columns import undescribed
from tests.workflow.project import CHECKOUT, STANDINS, TINY, Built, Project, copy, rules, said, use_nsys

CELL = "results/lstm/train"
STEPS = 2
NVTX = "SELECT coalesce(text, value) AS name, start, end, domainId FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id"
REPORTS = {
    "cuda_api_gpu_sum", "cuda_api_sum", "cuda_api_trace", "cuda_gpu_kern_gb_sum", "cuda_gpu_kern_sum",
    "cuda_gpu_mem_size_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_sum", "cuda_gpu_trace", "cuda_kern_exec_sum",
    "cuda_kern_exec_trace", "osrt_sum", "um_cpu_page_faults_sum", "um_sum", "um_total_sum",
}  # fmt: skip


def installed() -> Path | None:
    """The folder of nsys: PROFZOO_NSYS, else the one on PATH."""
    named = os.environ.get("PROFZOO_NSYS")
    if named:
        # A wrong name is a mistake, not a machine without nsys.
        assert (Path(named) / "nsys").exists(), f"PROFZOO_NSYS={named} holds no nsys"
        return Path(named).resolve()
    found = shutil.which("nsys")
    return Path(found).parent if found else None


NSYS = installed()
pytestmark = [
    pytest.mark.nsys,
    pytest.mark.skipif(
        NSYS is None,
        reason="no nsys: neither PROFZOO_NSYS nor PATH has one; tests/tools/install-nsys.sh DIR sets one up",
    ),
]


@pytest.fixture(scope="module")
def nsys_build(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """One cell under nsys, with the default reports."""
    assert NSYS
    root = tmp_path_factory.mktemp("nsys") / "project"
    project = copy(root, TINY.replace("nsys: {window: 2}", f"nsys: {{window: {STEPS}}}"))
    use_nsys(project, NSYS)
    return Built(project, f"{CELL}.nsys.csv", f"{CELL}.nsys/osrt_sum.csv")


@pytest.fixture
def nsys_built(nsys_build: Built) -> Project:
    return nsys_build.restored()


def ranges(project: Project) -> list[tuple[str, int, int, int]]:
    """All NVTX ranges of the trace: name, start, end, domain; in order."""
    with closing(sqlite3.connect(project.root / f"{CELL}.nsys.sqlite")) as database:
        return database.execute(f"{NVTX} WHERE end IS NOT NULL ORDER BY start").fetchall()


def test_where_the_steps_of_a_cpu_go(nsys_built: Project) -> None:
    (row,) = csv.DictReader(io.StringIO(nsys_built.read("results/lstm/train.nsys-steps.csv")))
    seen = {key: float(value) for key, value in row.items() if value}
    assert seen["steps"] == STEPS - 1 and seen["launches"] == seen["busy_ns"] == 0
    assert seen["idle_host_ns"] + seen["idle_input_ns"] == pytest.approx(seen["wall_ns"])
    parts = sum(seen[f"cpu_{part}_ns"] for part in ("data", "transfer", "forward", "loss", "backward", "optimizer"))
    assert 0.5 * seen["wall_ns"] < parts <= seen["wall_ns"]


@pytest.mark.slow
def test_a_whole_run_counts_the_steps_of_its_window(nsys_built: Project) -> None:
    target, chosen = f"{CELL}.nsys.csv", ["--config", f"nsys={{window: {STEPS}, capture: run}}"]
    assert rules(nsys_built.dry(target, *chosen)) == {"profile_nsys", "export_nsys"}
    nsys_built.snakemake(target, *chosen)
    # Warm-up is in the trace, and does not count.
    assert [name for name, *_ in ranges(nsys_built)].count(make_nvtx_name(STEP)) == STEPS + 1
    assert json.loads(nsys_built.read(f"{target}.json"))["traced_steps"] == STEPS
    (row,) = csv.DictReader(io.StringIO(nsys_built.read("results/lstm/train.nsys-steps.csv")))
    assert float(row["steps"]) == STEPS - 1


@pytest.mark.slow
def test_modules_are_ranges_where_they_are_wanted(nsys_built: Project) -> None:
    assert not [name for name, *_ in ranges(nsys_built) if name.startswith(f"{MODULE}:")]
    target, chosen = f"{CELL}.nsys.csv", ["--config", f"nsys={{window: {STEPS}, modules: true}}"]
    assert rules(nsys_built.dry(target, *chosen)) == {"profile_nsys", "export_nsys"}
    nsys_built.snakemake(target, *chosen)
    found = ranges(nsys_built)
    (forward, *_) = [(start, end) for name, start, end, _ in found if name == make_nvtx_name("forward")]
    modules = [
        name for name, start, end, _ in found if name.startswith("module:") and forward[0] <= start <= forward[1]
    ]
    assert modules == ["module:(root):SentimentLSTM", "module:lstm:LSTM", "module:head:Linear"]
    # The parts of the step are what they were.
    assert [name for name, *_ in found if not name.startswith("module:")].count(make_nvtx_name("backward")) == STEPS
    (row,) = csv.DictReader(io.StringIO(nsys_built.read("results/lstm/train.nsys-steps.csv")))
    assert 0 < float(row["cpu_forward_ns"]) < float(row["wall_ns"])


@pytest.mark.slow
def test_on_a_cpu_nothing_was_launched_that_could_be_replayed(nsys_built: Project) -> None:
    nsys_built.snakemake(f"{CELL}.replay.csv", f"{CELL}.host.csv", f"{CELL}.nsys-idle.csv")
    (steps,) = csv.DictReader(io.StringIO(nsys_built.read(f"{CELL}.nsys-steps.csv")))
    idle = reading.read(nsys_built.root / f"{CELL}.nsys-idle.csv", host_schema.IDLE)
    for cause in ("input", "host"):
        assert idle.loc[idle["cause"] == cause, "idle_ns"].sum() == pytest.approx(float(steps[f"idle_{cause}_ns"]))
    assert undescribed(nsys_built.root / "results") == []
    for name, table in (("replay", replay.GAINS), ("host", replay.TAX)):
        assert reading.read(nsys_built.root / f"{CELL}.{name}.csv", table).empty
    assert program.read_programs(nsys_built.root / f"{CELL}.program.npz") == {}


@pytest.mark.slow
def test_what_was_not_collected_over_time_has_no_row_and_a_line(nsys_built: Project) -> None:
    made = nsys_built.snakemake(f"{CELL}.nsys-metrics.csv", f"{CELL}.nsys-tracks.csv")
    said = made.stdout + made.stderr
    assert "nsys-memory.csv have no row, as the cell ran on a CPU" in said and "set nsys." not in said
    for name, table in (("metrics", gpu_metrics.METRIC_SAMPLES), ("metrics-steps", gpu_metrics.STEPS),
                        ("memory", gpu_memory.TABLE)):  # fmt: skip
        assert reading.read(nsys_built.root / f"{CELL}.nsys-{name}.csv", table).empty
    reading.read(nsys_built.root / f"{CELL}.nsys-tracks.csv", tracks.TABLE)
    assert undescribed(nsys_built.root / "results") == []
    # `all` asks for the tables only where they are collected.
    for own, collects in (("gpu_metrics: false", False), ("gpu_metrics: true", True)):
        planned = nsys_built.dry("all", "--config", "tool=nsys", f"nsys={{window: {STEPS}, {own}}}")
        assert ("export_nsys_over_time" in rules(planned)) == collects


def test_a_cpu_has_no_streams_and_perfetto_gets_ranges_and_system_calls(nsys_built: Project) -> None:
    trace = f"{CELL}.nsys.trace.json.gz"
    there = {path: path.stat().st_mtime_ns for path in nsys_built.root.glob(f"{CELL}.nsys*")}
    nsys_built.snakemake(f"{CELL}.nsys-streams.csv", trace)
    # What was traced and exported stays.
    assert {path: path.stat().st_mtime_ns for path in there} == there and len(there) > 4
    for name, table in (("nsys-streams", streams.TABLE), ("nsys-copies", streams.COPIES)):
        assert reading.read(nsys_built.root / f"{CELL}.{name}.csv", table).empty
    events = json.loads(gzip.decompress((nsys_built.root / trace).read_bytes()))["traceEvents"]
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    shown = [(names[event["pid"], event["tid"]], event["name"]) for event in events if event["ph"] == "X"]
    steps = [track for track, name in shown if name == make_nvtx_name(STEP)]
    assert len(steps) == STEPS and all(track.endswith(": ranges") for track in steps)
    # As many calls as nsys itself has counted, besides its mark of the beginning.
    counted = csv.DictReader(io.StringIO(nsys_built.read(f"{CELL}.nsys/osrt_sum.csv")))
    system = [name for track, name in shown if track.split(" (2)")[0].endswith(": system calls")]
    assert sum(not name.startswith("OS runtime libraries") for name in system) == sum(
        int(row["Num Calls"]) for row in counted
    )


def test_nothing_but_the_files_of_the_design(nsys_built: Project) -> None:
    assert undescribed(nsys_built.root / "results") == []
    reports = {f"lstm/train.nsys/{report}.csv" for report in REPORTS}
    traces = {f"lstm/train.{end}" for end in ("nsys-rep", "nsys-rep.json", "nsys.sqlite")}
    exports = {f"lstm/train.{end}" for end in ("nsys.csv", "nsys.csv.json", "nsys-steps.csv")}
    assert nsys_built.files() == reports | traces | exports


def test_export_has_a_header_only_without_a_gpu(nsys_built: Project) -> None:
    header, *rows = csv.reader(io.StringIO(nsys_built.read(f"{CELL}.nsys.csv")))
    assert {"mangled", "range", "launches", "total_ns", "median_ns", "share"} <= set(header)
    assert rows == []


def test_reports_have_data_or_say_why_not(nsys_built: Project) -> None:
    tables = {
        report: list(csv.DictReader(io.StringIO(nsys_built.read(f"{CELL}.nsys/{report}.csv")))) for report in REPORTS
    }
    osrt = tables.pop("osrt_sum")
    assert all(int(row["Num Calls"]) > 0 for row in osrt) and osrt
    for report, rows in tables.items():
        assert [list(row) for row in rows] == [["skipped"]], report
        assert rows[0]["skipped"].startswith("does not contain"), report


def test_window_is_what_was_traced(nsys_built: Project) -> None:
    found = ranges(nsys_built)
    names = [name for name, *_ in found]
    assert names.count(make_nvtx_name(STEP)) == STEPS
    assert {part: names.count(make_nvtx_name(part)) for part in PARTS} == dict.fromkeys(PARTS, STEPS)
    steps = [(start, end) for name, start, end, _ in found if name == make_nvtx_name(STEP)]
    for name, start, end, _ in found:
        if name in map(make_nvtx_name, PARTS):
            assert any(first <= start <= end <= last for first, last in steps)
    assert set(names) <= set(map(make_nvtx_name, (WINDOW, STEP, *PARTS)))


def test_ranges_are_in_our_domain(nsys_built: Project) -> None:
    with closing(sqlite3.connect(nsys_built.root / f"{CELL}.nsys.sqlite")) as database:
        created = database.execute(f"{NVTX} WHERE eventType = 75").fetchall()
    domains = {number: name for name, _, _, number in created}
    assert {domains[number] for _, _, _, number in ranges(nsys_built)} == {DOMAIN}


def test_sidecar_says_how_it_came_about(nsys_built: Project) -> None:
    facts = json.loads(nsys_built.read(f"{CELL}.nsys-rep.json"))
    assert facts["tool_version"].startswith("NVIDIA Nsight Systems version")
    assert facts["command"][:2] == ["nsys", "profile"]
    assert facts["steps"] == STEPS
    # Without a GPU torch has all cores.
    assert facts["threads"] == len(os.sched_getaffinity(0))
    assert "gpu" not in facts or facts["device_type"] == "cpu"


@pytest.mark.slow
def test_tools_print_in_one_locale_whatever_the_users(nsys_built: Project) -> None:
    """Reports hold the environment of what was profiled."""
    assert b"LC_ALL=C\0" in (nsys_built.root / f"{CELL}.nsys-rep").read_bytes()


@pytest.mark.slow
def test_second_run_does_nothing(nsys_built: Project) -> None:
    assert nsys_built.dry(f"{CELL}.nsys.csv", f"{CELL}.nsys/osrt_sum.csv") == []


@pytest.mark.slow
def test_changed_parser_exports_again(nsys_built: Project) -> None:
    path = "profzoo/tools/nsys/tables.py"
    nsys_built.write(path, nsys_built.read(path) + "\n# changed\n")
    assert rules(nsys_built.dry(f"{CELL}.nsys.csv", f"{CELL}.nsys/osrt_sum.csv")) == {"export_nsys"}


@pytest.mark.slow
def test_reports_by_their_old_names(nsys_built: Project) -> None:
    chosen = ["--config", "nsys={window: 2, reports: [gpukernsum, osrtsum, nvtx_pushpop_sum]}"]
    target = f"{CELL}.nsys/nvtx_pushpop_sum.csv"
    assert rules(nsys_built.dry(target, *chosen)) == {"export_nsys_stats"}
    nsys_built.snakemake(target, *chosen)
    assert nsys_built.read(f"{CELL}.nsys/cuda_gpu_kern_sum.csv").startswith("skipped\n")
    rows = list(csv.DictReader(io.StringIO(nsys_built.read(f"{CELL}.nsys/nvtx_pushpop_sum.csv"))))
    assert {row["Range"]: int(row["Instances"]) for row in rows}[f"{DOMAIN}:{make_nvtx_name(STEP)}"] == STEPS


@pytest.mark.slow
def test_tables_and_report_without_kernels(nsys_built: Project) -> None:
    nsys_built.draw_one()
    nsys_built.snakemake("all", "--config", "tool=nsys", "models=lstm", "phases=train")
    assert "report.html" in nsys_built.files()


@pytest.mark.slow
@pytest.mark.xfail(
    bool(namespace.why_unavailable()), reason="nsys records the environment of every process that it may read"
)
def test_trace_holds_no_secret(nsys_built: Project) -> None:
    """A variable that snakemake has, and that `variables` does not list, reaches neither report nor export."""
    nsys_built.variables = {**nsys_built.variables, "SOME_TOKEN": "opensesame-opensesame"}
    target = f"{CELL}.nsys-rep"
    try:
        nsys_built.snakemake(target, "--force")
    finally:
        nsys_built.variables = {key: value for key, value in nsys_built.variables.items() if key != "SOME_TOKEN"}
    assert b"opensesame" not in (nsys_built.root / target).read_bytes()
    assert b"opensesame" not in (nsys_built.root / f"{CELL}.nsys.sqlite").read_bytes()


def test_installer_does_nothing_where_complete(tmp_path: Path) -> None:
    installer = CHECKOUT / "tests" / "tools" / "install-nsys.sh"
    (tmp_path / ".complete").touch()
    subprocess.run([installer, tmp_path], check=True)
    assert [path.name for path in tmp_path.iterdir()] == [".complete"]


@pytest.mark.slow
def test_every_process_of_a_cell_on_several_gpus_is_traced(nsys_built: Project) -> None:
    cell, table = "results/lstm@ddp/train", "results/tables/ranks.csv"
    chosen = ["models=lstm@ddp", "tool=nsys", "variants={ddp: {gpus: 2, batch: 2}}"]
    # Two that start at once on a busy machine may miss their agents (nsys 2023.4).
    nsys_built.snakemake("-j1", "--retries", "2", table, f"{cell}.nsys.csv", "--config", *chosen)
    rows = list(csv.DictReader(io.StringIO(nsys_built.read(table))))
    host = json.loads(nsys_built.read(f"{cell}.nsys-rep.json"))["host"]
    assert [row["model"] for row in rows] == ["lstm@ddp"] * 2
    assert [(row["host"], row["rank"]) for row in rows] == [(host, "0"), (host, "1")]
    assert all(float(row["wall_ns"]) > 0 and float(row["steps"]) == STEPS - 1 for row in rows)
    traces = {path.name for path in (nsys_built.root / f"{cell}.nsys-ranks").iterdir() if not path.name.startswith(".")}
    assert traces == {f"{host}.{rank}.{end}" for rank in (0, 1) for end in ("nsys-rep", "sqlite")}
    assert nsys_built.dry(table, "--config", *chosen) == []
    nsys_built.draw_one()
    nsys_built.snakemake("-j1", "report", "--config", *chosen, "phases=train")
    page = nsys_built.read("results/report.html")
    assert ">Processes, one per GPU<" in page and page.count(f'<td class="text">{host}</td>') == 2
    nsys_built.snakemake("clean", "--config", *(word for word in chosen if word != "tool=nsys"))
    assert not (nsys_built.root / "results" / "lstm@ddp").exists()


@pytest.mark.slow
@pytest.mark.skipif(not (NSYS and (NSYS.parent / "python").is_dir()), reason="this nsys sees the ranges of nvtx here")
def test_an_nsys_older_than_nvtx_is_named(nsys_built: Project) -> None:
    """Without the release of nvtx that came with it, it never sees a window open."""
    nsys_built.variables = {}
    shutil.rmtree(nsys_built.root / "results")
    run = nsys_built.snakemake(f"{CELL}.nsys-rep", ok=False)
    assert len(said(run)) == 1 and said(run)[0].startswith("nsys never saw the program's window open")
    run = nsys_built.snakemake("doctor", ok=False)
    assert re.search(r"nvtx +\S+, whose ranges this nsys does not see", run.stdout + run.stderr)
    assert re.search(r"^(ok|--)  CPU samples +(not )?possible.*perf_event_paranoid is", run.stdout, re.MULTILINE)
    nsys_built.variables = {"PYTHONPATH": str(NSYS.parent / "python")}
    assert re.search(r"nvtx +\S+, seen by nsys", nsys_built.snakemake("doctor", ok=False).stdout)


@pytest.mark.slow
def test_a_damaged_trace_is_named_with_the_command_that_makes_it_again(nsys_built: Project) -> None:
    csv, trace = f"{CELL}.nsys.csv", nsys_built.root / f"{CELL}.nsys.sqlite"
    trace.write_bytes(trace.read_bytes()[:-5000])
    (nsys_built.root / csv).unlink()
    run = nsys_built.snakemake(csv, ok=False)
    (line,) = said(run)
    assert run.returncode != 0 and line.startswith(f"{CELL}.nsys.sqlite is damaged (it has ")
    assert line.endswith(f"`snakemake --force {CELL}.nsys.sqlite` makes it again")
    assert trace.exists()
    nsys_built.snakemake("--force", f"{CELL}.nsys.sqlite")
    nsys_built.snakemake(csv)
    assert trace.exists() and (nsys_built.root / csv).exists()


@pytest.mark.parametrize(
    "name",
    slow.first(
        ["a%hb", 'a"b', *(pytest.param(name, marks=pytest.mark.faults) for name in ("a#b", "a?b", "a%41b", "a&b"))]
    ),
)
def test_nsys_leaves_its_export_whatever_the_folder_is_called(nsys_built: Project, tmp_path: Path, name: str) -> None:
    """By the collecting job itself, with a real nsys around a cell that only pretends to run."""
    folder = tmp_path / name
    folder.mkdir()
    facts = json.loads(nsys_built.read(f"{CELL}.nsys-rep.json"))
    described = {key: facts[key] for key in ("tool", "cell", "environment", "options", "capture")}
    files = {"report": "train.nsys-rep", "sqlite": "train.nsys.sqlite", "sidecar": "train.nsys-rep.json"}
    # Of the whole run, as a cell that pretends opens no window.
    described["options"] = ["--force-overwrite=true", "--export=sqlite", "--trace=osrt", "--sample=none"]
    words = [f"{key}={folder / file}" for key, file in files.items()]
    environment = nsys_built.environment() | {"PYTHONPATH": f"{STANDINS / 'cell'}:{nsys_built.root}"}
    job = [sys.executable, "-m", "profzoo.collect", "--job", json.dumps(described), "--log", str(folder / "log")]
    run = subprocess.run([*job, *words], cwd=nsys_built.root, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert {path.name for path in folder.iterdir()} == {*files.values(), "log", ".records"}
    command = json.loads((folder / files["sidecar"]).read_text())["command"]
    assert command[command.index("--output") + 1] == str(folder / files["report"])
    # Not by its path, which SQLite takes for an address.
    shutil.copy(folder / files["sqlite"], tmp_path / "plain.sqlite")
    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM StringIds").fetchone()[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a#b", 'a"b?c %41&'])
def test_reports_are_the_same_whatever_the_folder_is_called(
    nsys_built: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    trace, report = Path(shutil.copy(nsys_built.root / f"{CELL}.nsys.sqlite", folder)), folder / "osrt_sum.csv"
    monkeypatch.setenv("PATH", nsys_built.environment()["PATH"])
    command.main(str(trace), {"osrt_sum": str(report)})
    assert report.read_text() == nsys_built.read(f"{CELL}.nsys/osrt_sum.csv")
    assert {path.name for path in folder.iterdir()} == {trace.name, report.name}


SCRIPT = """\
import nvtx
import torch
from torch import nn
from torch.profiler import record_function

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for place in range(200):
    with record_function("iteration"), nvtx.annotate(f"iteration {place}", domain="mine"):
        optimizer.zero_grad()
        with record_function("model"), nvtx.annotate("model"):
            loss = nn.functional.mse_loss(model(torch.ones(3, 6)), torch.ones(3, 2))
        loss.backward()
        optimizer.step()
"""
CONFIGURATION = """\
tool: nsys,torch
models: [mine, lstm]
phases: [train]
device: cpu
warmup: 1
time: {window: 2}
torch: {window: 4}
nsys: {window: 4}
settings:
  mine: {command: python own/train.py}
  lstm: {sequence_length: 8}
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A script with ranges, and a model without."""
    assert NSYS
    root = tmp_path_factory.mktemp("ranges") / "project"
    project = copy(root, CONFIGURATION)
    (root / "own").mkdir()
    (root / "own" / "train.py").write_text(SCRIPT)
    use_nsys(project, NSYS)
    project.snakemake("results/report.html")
    return project


@pytest.mark.slow
def test_own_ranges_have_rows_by_what_opened_them(measured: Project) -> None:
    table = pd.read_csv(measured.root / "results/mine/train.ranges.csv").set_index(["api", "range"])
    assert {name for _, name in table.index} == {
        "(step)", "(other)", "iteration", "iteration > model", "iteration #@mine", "iteration #@mine > model",
    }  # fmt: skip
    torch = table.loc["record_function"]
    assert torch.loc["iteration > model", "parent"] == "iteration" and torch.loc["iteration > model", "calls"] == 1
    assert torch.loc[["iteration", "(other)"], "total_ns"].sum() == pytest.approx(torch.loc["(step)", "total_ns"])
    assert torch.loc["iteration", "total_ns"] > 0.5 * torch.loc["(step)", "total_ns"]
    nvtx = table.loc["nvtx"]
    assert nvtx["total_ns"].isna().all() and nvtx.loc["iteration #@mine > model", "calls"] == 1
    assert nvtx.loc["iteration #@mine > model", "cpu_ns"] < nvtx.loc["iteration #@mine", "cpu_ns"]


@pytest.mark.slow
def test_tables_and_page_have_them_of_cells_with_such_ranges_alone(measured: Project) -> None:
    table = schemas.read_table("ranges", measured.root / "results/tables/ranges.csv")
    assert set(table.loc[table["api"] != "", "model"]) == {"mine"} and set(table["model"]) == {"mine", "lstm"}
    assert len(pd.read_csv(measured.root / "results/lstm/train.ranges.csv")) == 0
    assert "user_range" not in pd.read_csv(measured.root / "results/lstm/train.torch.launches.csv")
    page = measured.read("results/report.html")
    blocks = [json.loads(text) for text in packed_blocks.list_blocks(page, "data")]
    (tree,) = [block["ranges"] for block in blocks if "ranges" in block]
    assert {"record_function", "record_function > iteration > model", "nvtx"} <= {*tree["name"]["words"]}


@pytest.mark.slow
def test_a_copy_without_traces_keeps_the_rows_that_came_along(measured: Project, tmp_path: Path) -> None:
    other = copy(tmp_path / "project", CONFIGURATION)
    other.path, other.variables = measured.path, measured.variables
    shutil.copytree(measured.root / "own", other.root / "own")
    shutil.copytree(measured.root / "results", other.root / "results")
    for ending in ("nsys.sqlite", "nsys-rep", "trace.json.gz", "torch.ranges.csv"):
        for path in (other.root / "results").rglob(f"train.{ending}"):
            path.unlink()
    (other.root / "results/tables/ranges.csv").unlink()
    other.snakemake("results/tables/ranges.csv", "--config", "collect=false")
    assert other.read("results/mine/train.ranges.csv") == measured.read("results/mine/train.ranges.csv")
    assert other.read("results/tables/ranges.csv") == measured.read("results/tables/ranges.csv")
