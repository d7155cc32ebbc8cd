"""The whole path of ncu through the workflow, by a recorded stand-in, and the ways in which ncu fails."""

import csv
import gzip
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.cell.schema import load_schema
from profzoo.tools import kernel_signature
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import known_operations
from tests.conftest import DATA
from tests.faults.jobs import wait, wait_for_ends
from tests.unit.test_nsys_tables import ONE, export
from tests.workflow.project import STANDINS, Project, finished, list_jobs, rules, said

LAUNCHES = 468
METRIC = "gpu__time_duration.sum"
KEY = ("mangled", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
KEY += ("smem_static_bytes", "smem_dynamic_bytes")


def table(project: Project, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(project.read(f"results/lstm/{path}"))))


def sidecar(project: Project, path: str) -> dict[str, Any]:
    return json.loads(project.read(f"results/lstm/{path}"))


def configuration(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[key] for key in KEY)


def found(rows: list[dict[str, str]], census: list[dict[str, str]]) -> None:
    """Each row is the launch that it says, and those of a configuration stand for all of its launches.

    Of every run the stand-in prints what it printed of the census, so that the launch is known by its time.
    """
    weights: dict[tuple[str, ...], float] = {}
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        launch = census[int(row["launch"])]
        assert (launch[METRIC], configuration(launch)) == (row[METRIC], configuration(row))
        assert row["as_planned"] == "True" and (row["run"] != "1" or launch["id"] == row["id"])
        weights[configuration(row)] = weights.get(configuration(row), 0.0) + float(row["multiplicity"])
    for row in rows:
        assert weights[configuration(row)] == pytest.approx(int(row["launches"]))


def test_default_set_has_every_launch(ncu_built: Project) -> None:
    rows = table(ncu_built, "train.ncu.csv")
    assert rows == table(ncu_built, "train.ncu.launch.csv")
    assert len(rows) == LAUNCHES
    assert {row["range"] for row in rows} >= {"forward", "backward", "optimizer"}
    assert all(float(row[METRIC]) > 0 for row in rows)
    assert sidecar(ncu_built, "train.ncu.csv.json")["units"][METRIC] == "ns"


def test_other_set_has_its_counts_from_the_census(ncu_built: Project) -> None:
    census, rows = table(ncu_built, "train.ncu.launch.csv"), table(ncu_built, "train.ncu.roofline.csv")
    assert set(map(configuration, rows)) == set(map(configuration, census))
    found(rows, census)
    assert sum(float(row["multiplicity"]) for row in rows) == pytest.approx(LAUNCHES)
    for row in rows:
        same = [launch for launch in census if configuration(launch) == configuration(row)]
        assert int(row["launches"]) == len(same)


@pytest.mark.slow
def test_what_limits_occupancy_is_in_a_table(ncu_built: Project) -> None:
    ncu_built.snakemake("results/tables/occupancy.csv", "--config", "tool=ncu", "models=lstm", "phases=train")
    rows = list(csv.DictReader(io.StringIO(ncu_built.read("results/tables/occupancy.csv"))))
    assert sum(float(row["launches"]) for row in rows) == LAUNCHES
    assert all(row["theoretical_pct"] == row["computed_pct"] for row in rows)
    assert {row["limiter"] for row in rows} >= {"", "registers"}
    # The set launch has no counters.
    assert ncu_built.read("results/tables/memory_chart.csv").count("\n") == 1


def test_details_page_is_verbatim(ncu_built: Project) -> None:
    rows = table(ncu_built, "train.ncu-details.csv")
    assert {"Section Name", "Metric Name", "Rule Description"} <= set(rows[0])


@pytest.mark.slow
def test_the_details_page_of_any_set_is_made_by_name(ncu_built: Project) -> None:
    ncu_built.snakemake("results/lstm/train.ncu-details.roofline.csv")
    rows = table(ncu_built, "train.ncu-details.roofline.csv")
    assert any(row["Estimated Speedup"] for row in rows) and len({row["ID"] for row in rows}) > 1


@pytest.mark.slow
def test_a_source_page_that_ncu_cannot_print_is_named_in_one_line(ncu_built: Project) -> None:
    run = ncu_built.snakemake("results/lstm/train.ncu-source.roofline.csv", ok=False)
    assert "train.roofline.ncu-rep cannot be printed by this ncu: " in said(run)[0]


def test_sidecar_says_how_it_came_about(ncu_built: Project) -> None:
    facts = sidecar(ncu_built, "train.roofline.ncu-rep.json")
    assert (facts["gpu"], facts["driver"]) == ("NVIDIA H200", "580.159.04")
    assert facts["tool_version"] == "Version 2025.3.1.0 (recorded stand-in)"
    command = facts["command"]
    assert command[:3] == ["python", "-m", "profzoo.tools.ncu.multi_run"]
    chosen = command.index("--filter-mode")
    assert command[chosen : chosen + 2] == ["--filter-mode", "per-launch-config"]
    # Of each metric that adds up, the total of the window; the stand-in has no other than the time.
    total, low, high = sidecar(ncu_built, "train.ncu.roofline.csv.json")["totals"][METRIC]
    every = sum(float(row[METRIC]) for row in table(ncu_built, "train.ncu.launch.csv"))
    assert total == pytest.approx(every, rel=0.01) and low < total < high < 1.1 * total
    assert facts["loss"] > 0 and facts["cell"]["model"] == "lstm"


def test_nothing_but_the_files_of_the_design(ncu_built: Project) -> None:
    reports = {f"lstm/train.{name}.ncu-rep{end}" for name in ("launch", "roofline") for end in ("", ".json")}
    runs = sidecar(ncu_built, "train.roofline.plan.json")["runs"]
    assert runs > 1
    reports |= {f"lstm/train.roofline.ncu-more/{number}.ncu-rep" for number in range(2, runs + 1)}
    exports = {f"lstm/train.ncu{name}.csv{end}" for name in ("", ".launch", ".roofline") for end in ("", ".json")}
    others = {f"lstm/train.{name}" for name in ("memory.csv", "time.csv", "time.csv.json", "ncu-details.csv")}
    # Snakemake's own mark in a folder that a job makes.
    made = {path for path in ncu_built.files() if not path.endswith(".snakemake_timestamp")}
    assert made == reports | exports | others | {f"lstm/train.roofline.{name}.json" for name in ("job", "plan")}


@pytest.mark.slow
def test_a_plan_for_an_error_is_printed_and_kept(ncu_built: Project) -> None:
    plan = sidecar(ncu_built, "train.roofline.plan.json")
    rows = table(ncu_built, "train.ncu.roofline.csv")
    assert len(rows) == plan["launches"] and {row["run"] for row in rows} == {
        str(number) for number in range(1, plan["runs"] - plan.get("joined", 0) + 1)
    }
    assert (
        plan["error"] <= 0.02
        and plan["options"] == sidecar(ncu_built, "train.roofline.ncu-rep.json")["plan"]["options"]
    )
    # A coarser one: planned and collected again, the census left as it is.
    jobs = ncu_built.dry("results/lstm/train.ncu.roofline.csv", "--config", "ncu={error: 50%}")
    again = ["export_ncu", "plan_ncu", "print_ncu_sampled", "profile_ncu_sampled", "settle_ncu"]
    assert sorted(job.rule for job in jobs) == again


@pytest.mark.slow
def test_operations_that_another_cell_counted_are_not_counted_again(counted: Project) -> None:
    """Another cell counted all kernels of this one but five; their operations are in the table, and ncu was not asked."""
    folder = counted.root / "results/earlier"
    folder.mkdir(parents=True)
    every = pd.read_csv(counted.recording / "lstm/train.ncu.launch.csv")
    kernels = sorted(set(every["mangled"]))[5:]
    asked = load_schema()["properties"]["ncu"]["properties"]["sets"]["default"]["roofline"]["metrics"]
    operations = {metric: place for place, metric in enumerate(filter(known_operations.is_operation, asked), 1)}
    some = every[every["mangled"].isin(kernels)].drop_duplicates([*KEY])
    some.assign(id=range(len(some)), **operations).to_csv(folder / "train.ncu.roofline.csv", index=False)
    facts = json.loads((counted.recording / "lstm/train.ncu.launch.csv.json").read_text())
    facts["units"] |= dict.fromkeys(operations, "inst")
    (folder / "train.ncu.roofline.csv.json").write_text(json.dumps(facts))
    run = counted.snakemake("results/lstm/train.ncu.roofline.csv", "--config", "device=auto")
    assert "configurations from earlier/train.ncu.roofline.csv" in said(run)[0]
    told = sidecar(counted, "train.ncu.roofline.csv.json")
    runs = ncu.run_options(told["plan"]["options"])
    assert len(runs) == told["plan"]["joined"] + 1 > 1
    first, *further = (words[words.index("--metrics") + 1].split(",") for words in runs)
    assert not {*operations} & {*first} and all({*operations} & {*own} for own in further)
    rows = table(counted, "train.ncu.roofline.csv")
    found(rows, table(counted, "train.ncu.launch.csv"))
    known = {tuple(str(value) for value in row[: len(KEY)]) for row in told["plan"]["known"]["rows"]}
    for metric, value in operations.items():
        filled = [row for row in rows if row[metric] and float(row[metric]) == value]
        assert 0 < len(filled) < len(rows) and told["units"][metric] == "inst"
        assert {configuration(row) for row in filled} == known & {configuration(row) for row in rows}


@pytest.mark.slow
def test_one_run_leaves_no_report_of_others(counted: Project) -> None:
    given = "ncu={error: 50%, operations: counted}"
    counted.snakemake("results/lstm/train.ncu.roofline.csv", "--config", "device=auto", given)
    rows, facts = table(counted, "train.ncu.roofline.csv"), sidecar(counted, "train.roofline.ncu-rep.json")
    assert facts["command"][0] == "ncu" and len(rows) == 186 == facts["plan"]["launches"]
    more = counted.root / "results/lstm/train.roofline.ncu-more"
    assert more.is_dir() and not list(more.glob("*.ncu-rep"))
    found(rows, table(counted, "train.ncu.launch.csv"))


@pytest.mark.slow
def test_a_plan_is_printed_and_held_against_the_outcome(counted: Project) -> None:
    run = counted.snakemake("results/lstm/train.ncu.roofline.csv", "--config", "device=auto", "ncu={budget: 9s}")
    planned, took = said(run)
    rows, facts = table(counted, "train.ncu.roofline.csv"), sidecar(counted, "train.roofline.ncu-rep.json")
    plan = facts["plan"]
    covered = len(set(map(configuration, rows)))
    assert 0 < covered == plan["configurations"] < plan["configurations_of_window"] == 186
    assert len(rows) == plan["launches"]
    assert f"{plan['launches']} launches, {covered} of 186 configurations, {plan['share']:.1%} of GPU time" in planned
    assert took.startswith("lstm train: ncu roofline took ") and took.endswith(
        f"{plan['estimate_s']:.0f} s were planned"
    )
    assert plan["estimate_s"] <= 9 and "--kernel-id" in facts["command"]
    assert plan["options"] == json.loads(counted.read("results/lstm/train.roofline.plan.json"))["options"]
    found(rows, table(counted, "train.ncu.launch.csv"))
    # A budget that pays for everything: planned and collected again.
    jobs = counted.dry("results/lstm/train.ncu.roofline.csv", "--config", "device=auto", "ncu={budget: 10m}")
    again = ["export_ncu", "plan_ncu", "print_ncu_sampled", "profile_ncu_sampled", "settle_ncu"]
    # The census does not go by a budget.
    assert sorted(job.rule for job in jobs) == again


@pytest.mark.slow
@pytest.mark.parametrize("profiled", [False, True])
def test_a_file_is_made_in_one_run_where_its_plan_is_out_of_date(counted: Project, profiled: bool) -> None:
    """Jobs that take what is made anew as ancient are not judged by Snakemake, nor are those after them."""
    wanted = "results/lstm/train.ncu.roofline.csv"
    counted.snakemake(wanted if profiled else "results/lstm/train.roofline.plan.json", "--config", "device=auto")
    if profiled:
        (counted.root / wanted).unlink()
    before = {path: (counted.root / "results" / path).stat().st_mtime_ns for path in counted.files()}
    (counted.root / "profzoo/tools/ncu/run_planning.py").touch()
    counted.snakemake(wanted, "--config", "device=auto")
    assert table(counted, "train.ncu.roofline.csv")
    # What was profiled is no worse for it.
    report = "lstm/train.roofline.ncu-rep"
    assert not profiled or (counted.root / "results" / report).stat().st_mtime_ns == before[report]


OWN = "ncu={sets: {own: {metrics: [gpu__time_duration.sum, smsp__inst_issued.sum]}}, launches: distinct}"


@pytest.mark.slow
def test_a_set_of_metrics_that_nobody_measured_is_probed_first(fresh: Project) -> None:
    fresh.path = (STANDINS,)
    target = ["results/lstm/train.ncu.own.csv", "--config", "device=auto", OWN]
    assert "probe_ncu" in rules(fresh.dry(*target))
    assert "probe_ncu" not in rules(fresh.dry("results/lstm/train.ncu.roofline.csv", "--config", "device=auto"))
    fresh.snakemake(*target)
    plan, probe = (json.loads(fresh.read(f"results/{name}")) for name in
                   ("lstm/train.own.plan.json", "peaks/gpu.own.ncu-rep.json"))  # fmt: skip
    assert (plan["basis"], plan["passes"]) == ("probed", 1)
    assert plan["launch_s"] == pytest.approx(probe["launch_s"], abs=1e-5) and len(probe["launches_s"]) == 8
    assert probe["gpu"] == "NVIDIA H200" and "smsp__inst_issued.sum" in " ".join(probe["command"])
    # Once for a GPU, whatever other cells there are.
    jobs = fresh.dry("results/lstm/train.ncu.own.csv", "results/lstm/inference.ncu.own.csv", *target[1:])
    assert "probe_ncu" not in rules(jobs) and "profile_ncu" in rules(jobs)


@pytest.mark.slow
def test_a_budget_for_nothing_is_one_line(counted: Project) -> None:
    run = counted.snakemake("results/lstm/train.ncu.full.csv", "--config", "device=auto", "ncu={budget: 1s}", ok=False)
    assert run.returncode and said(run)[0].startswith("ncu.budget = 1s does not pay for one launch of set full")


@pytest.mark.slow
def test_ranges_have_a_table_of_their_own(counted: Project) -> None:
    counted.snakemake("results/lstm/train.ncu.ranges.csv", "--config", "device=auto")
    rows = table(counted, "train.ncu.ranges.csv")
    assert [row["range"] for row in rows] == ["forward", "loss", "backward", "optimizer"]
    assert all(float(row[METRIC]) > 0 and float(row["dram__bytes_read.sum"]) > 0 for row in rows)
    assert not counted.files() & {"lstm/train.ncu.launch.csv", "lstm/train.ranges.plan.json"}


# The traces that stand for one of a GPU have ten steps.
TRACED = ["phases=train", "device=auto", "nsys={window: 10}"]
RANGED = ["tool=ncu,nsys", "models=lstm", *TRACED]


def traced(project: Project, sqlite: bytes | None = None, model: str = "lstm") -> None:
    """Trace a cell with a stand-in for nsys, which leaves a recorded export, or this one."""
    folder = project.root.parent / "nsys"
    folder.mkdir(exist_ok=True)
    shutil.copy2(STANDINS / "traced" / "nsys", folder)
    (folder / f"{model}.sqlite").write_bytes(sqlite or gzip.decompress((DATA / "nsys/train.sqlite.gz").read_bytes()))
    project.path = (folder, STANDINS)
    project.snakemake(f"results/{model}/train.nsys-rep", "--config", *TRACED, f"models={model}")


def trace_of_standin(path: Path, more_in: int | None = None, left_out: int = 0) -> bytes:
    """An export of nsys of ten steps of what the stand-in for ncu prints, at other times.

    more_in: the number of a step that launches its first kernel once more. left_out: launches at the end of the fourth
    step that it goes without.
    """
    page = gzip.decompress((DATA / "ncu/launch.raw.mangled.csv.gz").read_bytes()).decode()
    rows = list(csv.DictReader(line for line in io.StringIO(page) if not line.startswith("==")))[1:]
    names = {name: 10 + place for place, name in enumerate(dict.fromkeys(row["Kernel Name"] for row in rows))}
    kernels, calls, ranges, at = [], [], [], 0
    for step in range(10):
        began = at
        for row in rows[:1] * (step == more_in) + rows[: len(rows) - left_out * (step == 3)]:
            sizes = [json.loads(f"[{row[what][1:-1]}]") for what in ("Grid Size", "Block Size")]
            shared = [
                int(row[f"launch__shared_mem_per_block_{kind}"].replace(",", "")) for kind in ("static", "dynamic")
            ]
            ns = int(0.95 * float(row[METRIC].replace(",", ""))) + step
            mangled = names[row["Kernel Name"]]
            launched = (at + 10, at + 10 + ns, at, ONE, mangled, mangled, mangled, *sizes[0], *sizes[1], *shared, 32)
            kernels.append(launched)
            calls.append((at, at, ONE + 1))
            at += ns + 20
        ranges.append((began, at, ONE + 1, "step"))
        at += 100
    export(path, kernels, calls, ranges)
    with closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, name) for name, number in names.items()])
        database.commit()
    return path.read_bytes()


BY_NSYS = [*RANGED, "ncu={set: roofline}"]


@pytest.mark.slow
def test_the_trace_tells_the_launches_where_there_is_one(counted: Project, tmp_path: Path) -> None:
    traced(counted, trace_of_standin(tmp_path / "standin.sqlite"))
    counted.draw_one()
    files = ["lstm/train.ncu.csv", "lstm/train.kernels.csv", "tables/agreement.csv", "tables/coverage.csv"]
    counted.snakemake(*(f"results/{name}" for name in files), "--config", *BY_NSYS)
    # ncu did not count the launches for itself.
    assert not [path for path in counted.files() if "launch.ncu-rep" in path or "ncu.launch" in path]
    every, rows = table(counted, "train.nsys-launches.csv"), table(counted, "train.ncu.csv")
    assert len(every) == LAUNCHES and sidecar(counted, "train.ncu.csv.json")["census"] == "train.nsys-launches.csv"
    weights: dict[tuple[str, ...], float] = {}
    for row in rows:
        launch = every[int(row["launch"])]
        assert configuration(launch) == configuration(row) and row["as_planned"] == "True"
        # Of the first run, the stand-in prints the number of the launch.
        assert row["run"] != "1" or row["id"] == row["launch"]
        weights[configuration(row)] = weights.get(configuration(row), 0.0) + float(row["multiplicity"])
    assert sum(weights.values()) == pytest.approx(LAUNCHES) and len(weights) == 186
    kernels = table(counted, "train.kernels.csv")
    assert {row["source"] for row in kernels} == {"nsys+ncu"} and all(row["registers"] for row in kernels)
    (agreed,) = csv.DictReader(io.StringIO(counted.read("results/tables/agreement.csv")))
    assert agreed["nsys_launches"] == "468.0" and "ncu_launches" not in agreed
    (covered,) = csv.DictReader(io.StringIO(counted.read("results/tables/coverage.csv")))
    assert float(covered["coverage"]) == 1
    # ncu's own census is another choice: planned and exported by it, and not profiled again.
    jobs = counted.dry("results/lstm/train.ncu.csv", "--config", *BY_NSYS[:-1], "ncu={set: roofline, census: ncu}")
    assert {"profile_ncu", "print_ncu", "export_ncu", "plan_ncu"} <= rules(jobs)
    assert "profile_ncu_sampled" not in rules(jobs) and "settle_ncu" not in rules(jobs)


UNLIKE = "step 4 of 10 launches other kernels than step 1, from its launch 467 on"


@pytest.mark.slow
def test_where_steps_differ_ncu_counts_the_launches_itself(counted: Project, tmp_path: Path) -> None:
    traced(counted, trace_of_standin(tmp_path / "standin.sqlite", left_out=2))
    counted.draw_one()
    files = ["lstm/train.ncu.csv", "lstm/train.kernels.csv", "tables/coverage.csv"]
    run = counted.snakemake(*(f"results/{name}" for name in files), "--config", *BY_NSYS)
    (told,) = {line for line in said(run) if "train.nsys-launches.csv: " in line}
    assert UNLIKE in told and told.endswith(
        "so the trace does not show which launches ncu will see: ncu records the launches itself"
    )
    # Planned, matched and weighed by ncu's own census, and the sidecars say so.
    census, rows = table(counted, "train.ncu.launch.csv"), table(counted, "train.ncu.csv")
    assert len(census) == LAUNCHES and sidecar(counted, "train.ncu.csv.json")["census"] == "train.ncu.launch.csv"
    found(rows, census)
    plan = sidecar(counted, "train.roofline.plan.json")
    assert plan["census"] == "train.ncu.launch.csv" and UNLIKE in plan["census_note"]
    assert UNLIKE in sidecar(counted, "train.ncu.csv.json")["plan"]["census_note"]
    kernels = table(counted, "train.kernels.csv")
    assert {row["source"] for row in kernels} == {"nsys+ncu"} and all(row["registers"] for row in kernels)
    (covered,) = csv.DictReader(io.StringIO(counted.read("results/tables/coverage.csv")))
    assert float(covered["coverage"]) == 1
    # Nothing is left to do, and nothing is made again.
    again = counted.dry(*(f"results/{name}" for name in files), "--config", *BY_NSYS)
    assert not rules(again), again


@pytest.mark.slow
def test_of_several_cells_each_is_counted_by_who_can(counted: Project, tmp_path: Path) -> None:
    """One trace tells its launches and one does not: both are planned in a dry run, and made in one run."""
    traced(counted, trace_of_standin(tmp_path / "told.sqlite"))
    traced(counted, trace_of_standin(tmp_path / "untold.sqlite", left_out=2), "lstm@bf16")
    counted.draw_one()
    asked = [*(word for word in BY_NSYS if not word.startswith("models=")), "models=lstm,lstm@bf16"]
    models = ("lstm", "lstm@bf16")
    files = [
        f"results/{model}/train.{name}.csv" for model in models for name in ("ncu", "kernels", "ncu.roofline.coverage")
    ]
    for more in ((), ("--forceall",)):
        planned = counted.dry("all", *more, "--config", *asked, "tool=ncu,nsys,torch,time")
        assert {job.model for job in planned if job.rule == "derive_across_tools"} == set(models)
    counted.snakemake(*files, "results/tables/coverage.csv", "-j3", "--config", *asked)
    census = {model: json.loads(counted.read(f"results/{model}/train.ncu.csv.json"))["census"] for model in models}
    assert census == {"lstm": "train.nsys-launches.csv", "lstm@bf16": "train.ncu.launch.csv"}
    again = counted.dry(*files, "results/tables/coverage.csv", "--config", *asked)
    assert not rules(again), again


@pytest.mark.slow
def test_a_run_that_fails_before_a_trace_says_what_failed(counted: Project, tmp_path: Path) -> None:
    """Which plans the second cell has is not known then, nor what the joint jobs behind them take from each other."""
    traced(counted, trace_of_standin(tmp_path / "told.sqlite"))
    (tmp_path / "nsys" / "lstm@bf16.sqlite").write_bytes(b"")
    counted.draw_one()
    asked = [*(word for word in BY_NSYS if not word.startswith("models=")), "models=lstm,lstm@bf16"]
    run = counted.snakemake("report", "--config", *asked, ok=False)
    assert "lstm@bf16 train: nsys\n    why      nsys ended well but left no train.sqlite\n" in run.stderr
    assert "not run  lstm@bf16 train roofline: ncu\n" in run.stderr
    assert "report  results/report.html, from the results that succeeded\n" in run.stderr
    # Of what failed in a joint job, the rules make the rest one by one.
    assert "lstm/train.kernels.csv" in counted.files() and counted.read("results/logs/tables.rest.log")


@pytest.mark.slow
def test_a_census_that_has_to_be_of_nsys_still_ends_in_one_line(counted: Project, tmp_path: Path) -> None:
    traced(counted, trace_of_standin(tmp_path / "standin.sqlite", left_out=2))
    asked = [*BY_NSYS[:-1], "ncu={set: roofline, census: nsys}"]
    run = counted.snakemake("results/lstm/train.ncu.csv", "--config", *asked, ok=False)
    assert run.returncode and any(UNLIKE in line and "set ncu.census to ncu" in line for line in said(run))


@pytest.mark.slow
def test_launches_other_than_the_traced_ones_are_told_with_the_cure(counted: Project) -> None:
    """The trace is of another program than what the stand-in prints."""
    traced(counted)
    run = counted.snakemake("results/lstm/train.ncu.csv", "--config", *BY_NSYS)
    told = [line for line in said(run) if "with `ncu.census: ncu`, ncu records all launches instead of nsys" in line]
    assert told and "these functions have another number of profiled launches" in told[-1]
    assert sidecar(counted, "train.ncu.csv.json")["not_as_planned"]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", ["{set: ranges}", "{set: step}"])
def test_a_default_set_of_ranges_goes_without_what_is_of_launches(fresh: Project, chosen: str) -> None:
    fresh.path = (STANDINS,)
    asked = ("all", "--dry-run", "--config", *RANGED)
    printed, other = (fresh.snakemake(*asked, f"ncu={one}").stdout for one in (chosen, "{set: roofline}"))
    # No counters of launches, so none to hold against peaks, to cover, or to advise on.
    files = r"tables/roofline\.csv|\.coverage\.csv|peaks/gpu\.csv|figures/roofline\.svg|\.plan\.json"
    assert not re.findall(files, printed) and len({*re.findall(files, other)}) == 5
    assert {"derive_across_tools", "select_ncu", "print_ncu_details"} <= rules(list_jobs(printed))
    assert "tables/cells.csv" in printed and "tables/verdicts.csv" in printed


@pytest.mark.slow
def test_a_default_set_of_ranges_together_with_nsys(counted: Project) -> None:
    traced(counted)
    counted.draw_one()
    made = ["report.html", "lstm/train.ncu.csv", "tables/verdicts.csv", "tables/activity.csv", "lstm/train.kernels.csv"]
    files = [f"results/{name}" for name in made]
    counted.snakemake(*files, "--config", *RANGED, "ncu={set: ranges}")
    assert [row["range"] for row in table(counted, "train.ncu.csv")] == ["forward", "loss", "backward", "optimizer"]
    kernels = table(counted, "train.kernels.csv")
    traced_ns = sum(float(row["total_ns"]) for row in kernels if row["total_ns"])
    assert traced_ns * 10 == pytest.approx(44388337) and {row["source"] for row in kernels} >= {"nsys"}
    # The census, which is of launches, is joined as ever.
    assert "nsys+ncu" in {row["source"] for row in kernels}
    rows = list(csv.DictReader(io.StringIO(counted.read("results/tables/activity.csv"))))
    assert {row["tool"] for row in rows} == {"nsys", "ncu"}
    run = counted.snakemake(
        "results/lstm/train.ncu.ranges.coverage.csv", "--config", *RANGED, "ncu={set: ranges}", ok=False
    )
    assert (
        run.returncode and len(said(run)) == 1 and "measures ranges, which hold no launches to compare" in said(run)[0]
    )


@pytest.mark.slow
def test_program_sees_only_listed_variables(counted: Project) -> None:
    """The same variable, not listed under `variables`: the stand-in does not get it, and works."""
    counted.variables = {"STANDIN_NCU": "permission"}
    counted.snakemake("results/lstm/train.launch.ncu-rep", "--config", "device=auto")


@pytest.mark.slow
def test_option_that_ncu_does_not_know(fresh: Project) -> None:
    fresh.path = (STANDINS,)
    overrides = ["device=auto", "ncu={extra: [--frobnicate]}"]
    run = fresh.snakemake("results/lstm/train.ncu.csv", "--config", *overrides, ok=False)
    assert run.returncode != 0
    assert len(said(run)) == 1 and said(run)[0].startswith("the tool does not know one of the options")
    assert not fresh.files()


@pytest.mark.slow
def test_each_process_of_a_cell_on_several_gpus_is_profiled(fresh: Project) -> None:
    gpus = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in (0, 1)]
    fresh.path, fresh.variables = (STANDINS,), {"STANDIN_GPUS": "2", "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    cell, name = "results/lstm@ddp/train", "ncu-ranks.roofline.csv"
    chosen = ["device=auto", "variants={ddp: {gpus: 2, batch: 2}}"]
    fresh.snakemake(f"{cell}.{name}", "--resources", "gpu=2", "--config", *chosen)
    rows = list(csv.DictReader(io.StringIO(fresh.read(f"{cell}.{name}"))))
    facts = json.loads(fresh.read(f"{cell}.roofline.ncu-ranks.json"))
    assert {(row["host"], row["rank"]) for row in rows} == {(facts["host"], "0"), (facts["host"], "1")}
    each = [[configuration(row) for row in rows if row["rank"] == rank] for rank in "01"]
    assert each[0] == each[1] and len(each[0]) == len(set(each[0])) == 186
    reports = {path.name for path in (fresh.root / f"{cell}.roofline.ncu-ranks").iterdir() if path.suffix == ".ncu-rep"}
    assert reports == {f"{facts['host']}.{rank}.ncu-rep" for rank in (0, 1)}
    # Kernels that communicate wait for the other process, so that none is replayed.
    assert f"regex:{kernel_signature.REPLAYED}" in facts["command"] and facts["plan"]["configurations"] == 186
    fresh.snakemake("clean", "--config", *chosen)
    assert not (fresh.root / cell).parent.exists()


@pytest.mark.slow
def test_a_pretended_gpu_is_an_error(fresh: Project) -> None:
    """Without what stands in for it: torch sees no GPU, though nvidia-smi shows one."""
    (fresh.root.parent / "tools").mkdir()
    for name in ("ncu", "nvidia-smi"):
        (fresh.root.parent / "tools" / name).symlink_to(STANDINS / name)
    fresh.path = (fresh.root.parent / "tools",)
    targets = ["results/lstm/train.time.csv", "results/lstm/train.ncu.csv", "results/peaks/here.csv"]
    run = fresh.snakemake(*targets, "--config", "device=auto", ok=False)
    assert run.returncode != 0 and len(said(run)) == 3, run.stdout + run.stderr
    assert all("nvidia-smi shows NVIDIA H200, but torch" in line for line in said(run))
    assert not fresh.files()


def attaching(fresh: Project, body: str = "") -> None:
    """Have cells run on the CPU by themselves, and tell the stand-in for ncu where they would start CUDA."""
    (tools := fresh.root.parent / "tools").mkdir()
    for name in ("ncu", "nvidia-smi"):
        (tools / name).symlink_to(STANDINS / name)
    # Without the folder of modules that Python runs as it starts: no process would be forked.
    fresh.path, fresh.forks_cells = (tools,), False
    begin = 'if __name__ == "__main__":\n'
    # The census runs without the body.
    inside = 'if "roofline" in str(sys.argv):\n' + textwrap.indent(textwrap.dedent(body) or "pass\n", "    ")
    own = textwrap.indent(f'sys.argv.append("device=cpu")\nsys.audit("standin.cuda")\n{inside}', "    ")
    fresh.replace("models/run.py", begin, begin + own)


@pytest.mark.slow
def test_ncu_attaches_to_forks_and_leaves_what_it_leaves_of_programs_that_it_starts(fresh: Project) -> None:
    attaching(fresh)
    target, left = "results/lstm/train.ncu.roofline.csv", []
    for fork in ("true", "false"):
        fresh.snakemake("-j1", target, "--config", "device=auto", "ncu={operations: counted}", f"fork={fork}")
        facts = sidecar(fresh, "train.roofline.ncu-rep.json")
        logs = [fresh.read(f"results/logs/lstm/train.{name}.ncu.log") for name in ("launch", "roofline")]
        attached = [sidecar(fresh, f"train.{name}.ncu-rep.json").get("attached") for name in ("launch", "roofline")]
        runs = sidecar(fresh, "train.roofline.plan.json")["runs"]
        # The census has to see ranges.
        assert attached == ([None, runs] if fork == "true" else [None, None]) and runs > 1, logs
        assert [sum("Attaching to process" in line for line in log.splitlines()) for log in logs] == [
            one or 0 for one in attached
        ]
        # The command is one that a user can repeat.
        commands = [log.splitlines()[0].replace(str(fresh.root), "") for log in logs]
        left.append((fresh.files(), facts["command"], [re.sub(r"\.making/\w+", "", one) for one in commands]))
        left[-1] += (table(fresh, "train.ncu.roofline.csv"),)
        # Both ways take the same launches, because the plan stays, which goes by what it costs to start.
        for path in (fresh.root / "results/lstm").glob("train.*roofline.[cn]*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert left[0] == left[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "mode", "words"),
    [
        ("", "permission:roofline", "no permission to read the GPU's performance counters"),
        ("", "nothing:roofline", "no kernel launch matched"),
        ("", "empty:roofline", "ncu ended well but left no train.roofline.ncu-rep"),
        ("    raise RuntimeError('it cannot')\n", "", "ncu ended with exit code 1"),
        ("    import os\n    os.kill(os.getpid(), 11)\n", "", "ncu or what it ran crashed (SIGSEGV)"),
        ("    import time\n    time.sleep(120)\n", "", "ncu took longer than"),
    ],
)
def test_failures_are_told_alike_of_forks(fresh: Project, body: str, mode: str, words: str) -> None:
    attaching(fresh, body)
    fresh.variables, told = {"STANDIN_NCU": mode}, []
    for fork in ("true", "false"):
        given = ["device=auto", "variables=[STANDIN_NCU]", f"fork={fork}", "ncu={time_limit: 40s}"]
        run = fresh.snakemake("results/lstm/train.ncu.roofline.csv", "--config", *given, ok=False)
        log = fresh.read("results/logs/lstm/train.roofline.ncu.log")
        assert run.returncode != 0 and ("Attaching to process" in log) == (fork == "true"), log
        told.append(said(run)[-1])
        assert "results/logs/lstm/train.roofline.ncu.log" in told[-1]
        assert not [path for path in fresh.files() if path.startswith("lstm/train.roofline.ncu-rep")]
        shutil.rmtree(fresh.root / "results")
    assert told[0] == told[1] and told[0].startswith(words)


# Tells the processes above the cell: its server, and the ncu below which that runs.
STAYS = """
    import json, os, time
    from pathlib import Path as Said
    above = [os.getpid()]
    while above[-1] > 1:
        above.append(int(Said(f"/proc/{above[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
    Said("__cell__.new").write_text(json.dumps(above))
    Said("__cell__.new").rename("__cell__")
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_run_that_ends_leaves_no_fork_below_ncu(fresh: Project, harm: str) -> None:
    """SIGINT reaches all processes of a terminal, SIGKILL the run alone."""
    cell = fresh.root / "cell"
    attaching(fresh, STAYS.replace("__cell__", str(cell)))
    run = fresh.begun(
        "-j1", "results/lstm/train.ncu.roofline.csv", "--configfile", "tiny.yaml", "--config", "device=auto"
    )
    wait(cell.exists, 180)
    above = json.loads(cell.read_text())
    # The cell, its server, ncu, and the run.
    assert above[3] == run.pid
    if harm == "SIGINT":
        os.killpg(run.pid, signal.SIGINT)
    else:
        run.send_signal(getattr(signal, harm))
    assert finished(run)[0]
    wait_for_ends(above[:3], 60)
    assert not any(path.endswith("roofline.ncu-rep") for path in fresh.files())


@pytest.mark.slow
def test_a_cell_on_the_cpu_says_so_everywhere(fresh: Project) -> None:
    fresh.path = (STANDINS,)
    fresh.draw_one()
    run = fresh.snakemake("report", "--config", "models=lstm", "phases=train", "tool=time")
    why = "device = cpu, though NVIDIA H200 is here"
    assert f"profzoo: results/lstm/train.time.csv: measured on the CPU: {why}" in run.stdout + run.stderr
    assert sidecar(fresh, "train.time.csv.json")["device_why"] == why
    page = fresh.read("results/report.html")
    assert "Measured on the CPU, not on a GPU.</b> 1 of 1 cells: device = cpu, though NVIDIA H200 is here." in page
