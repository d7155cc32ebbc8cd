"""export_ncu, export_nsys, export_torch, export_nsys_stats and tabulate: from recordings to files, and honest errors."""

import csv
import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import read_json
from profzoo.tables import cell_tables, kernel_table, steps_per_export, tabulate
from profzoo.tools.ncu import export as export_ncu
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import export as export_nsys
from profzoo.tools.nsys import stats as export_nsys_stats
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.torch import export as export_torch
from profzoo.tools.torch import owners
from tests.conftest import DATA

NCU_PAGES = ("ncu/launch.raw.mangled.csv", "ncu/launch.raw.demangled.csv")


FIRST_OF_EACH = ["ncu", "--filter-mode", "per-launch-config", "--launch-count", "1", "--kernel-name-base", "mangled"]


def sidecar(folder: Path, **facts: object) -> str:
    """A sidecar of a collecting job."""
    path = folder / "in.json"
    path.write_text(json.dumps({"device_type": "cuda", "tool": "x", **facts}))
    return str(path)


def ncu(
    folder: Path,
    recording: Callable,
    census: str | None,
    launches: str,
    metrics: list[str],
    said: Callable = print,
    pages: list[str] | None = None,
    command: list[str] = FIRST_OF_EACH,
) -> tuple:
    """Exported table and sidecar of the recording, or of other pages."""
    pages = pages or [str(recording(name)) for name in NCU_PAGES]
    out = folder / "out.csv", folder / "out.csv.json"
    printed = folder / "printed"
    shutil.rmtree(printed, ignore_errors=True)
    printed.mkdir()
    for kind, page in zip(("mangled", "demangled"), pages, strict=True):
        shutil.copy(page, printed / f"train.{kind}.csv")
    facts = sidecar(folder, command=command)
    export_ncu.main(str(printed), facts, census, launches, metrics, False, *map(str, out), said)
    return pd.read_csv(out[0]), json.loads(out[1].read_text())


def processes(folder: Path, facts: str, census: str | None, launches: str) -> pd.DataFrame:
    """Exported table of the pages of each process."""
    out = folder / "o.csv", folder / "o.json"
    export_ncu.main(str(folder / "pages"), facts, census, launches, [], True, *map(str, out))
    return pd.read_csv(out[0])


def pages_of(folder: Path, recording: Callable, chosen: set[int]) -> list[str]:
    """The recorded pages with the launches of these numbers alone."""
    written = []
    for name in NCU_PAGES:
        header, units, *rows = csv.reader(recording(name).read_text().splitlines())
        kept = [row for row in rows if int(row[0]) in chosen]
        written.append(folder / name.replace("/", "."))
        with written[-1].open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([header, units, *kept])
    return [str(path) for path in written]


def test_ncu_census_counts_itself(tmp_path: Path, recording: Callable) -> None:
    table, facts = ncu(tmp_path, recording, None, "all", ["gpu__time_duration.sum"])
    assert len(table) == facts["rows"] == 468 and table["launches"].notna().all()
    assert facts["missing_metrics"] == [] and facts["units"]["gpu__time_duration.sum"] == "ns" and facts["tool"] == "x"


def test_ncu_counts_come_from_the_census(tmp_path: Path, recording: Callable) -> None:
    table, _ = ncu(tmp_path, recording, None, "all", [])
    census = tmp_path / "census.census_csv_name"
    kept = table.iloc[:100]
    counts = kept.groupby(ncu_tables.CONFIGURATION)["id"].transform("size")
    kept.assign(launches=counts).to_csv(census, index=False)
    again, _ = ncu(tmp_path, recording, str(census), "1000", [])
    known = again["launches"].notna()
    assert known[:100].all() and not known.all()
    assert again[known].drop_duplicates(ncu_tables.CONFIGURATION)["launches"].sum() == 100


def test_kernels_that_the_census_lacks_are_named(tmp_path: Path, recording: Callable) -> None:
    table, facts = ncu(tmp_path, recording, None, "all", [])
    assert facts["other_choices"] == []
    census = tmp_path / "census.census_csv_name"
    function = table["function"].value_counts().index[-1]
    kept = table[table["function"] != function]
    kept.assign(id=range(len(kept))).to_csv(census, index=False)
    said: list[str] = []
    again, facts = ncu(tmp_path, recording, str(census), "1000", [], said.append)
    assert facts["other_choices"] == [function]
    assert again.loc[again["function"] == function, "launches"].isna().all()
    assert function in said[0] and "deterministic: true" in said[0]


def test_values_that_ncu_did_not_have_are_counted(tmp_path: Path, recording: Callable) -> None:
    pages = pages_of(tmp_path, recording, set(range(20)))
    header, units, *rows = csv.reader(Path(pages[0]).read_text().splitlines())
    at = header.index("launch__waves_per_multiprocessor")
    rows[3][at] = rows[7][at] = "n/a"
    with Path(pages[0]).open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([header, units, *rows])
    table, facts = ncu(tmp_path, recording, None, "all", [], pages=pages)
    assert facts["no_value"] == {"launch__waves_per_multiprocessor": 2}
    assert table["launch__waves_per_multiprocessor"].notna().sum() == 18
    whole, facts = ncu(tmp_path, recording, None, "all", ["gpu__time_duration.sum"])
    assert facts["no_value"] == {} and whole["gpu__time_duration.sum"].notna().all()


def test_processes_whose_reports_differ_in_units_are_refused(tmp_path: Path, recording: Callable) -> None:
    (tmp_path / "pages").mkdir()
    for rank, unit in ((0, "warp"), (1, "thread")):
        for kind, page in zip(("mangled", "demangled"), pages_of(tmp_path, recording, {0, 1, 2}), strict=True):
            text = Path(page).read_text().replace('"warp"', f'"{unit}"')
            (tmp_path / "pages" / f"node.{rank}.{kind}.csv").write_text(text)
    facts = sidecar(tmp_path, command=["ncu"], ranks=[{}, {}])
    with pytest.raises(DataError, match=r"rank 1 has .* in thread, rank 0 in warp"):
        processes(tmp_path, facts, None, "all")


def test_the_first_launch_of_each_configuration(tmp_path: Path, recording: Callable) -> None:
    every, _ = ncu(tmp_path, recording, None, "all", [])
    census = tmp_path / "census.census_csv_name"
    every.to_csv(census, index=False)
    firsts = every.drop_duplicates(ncu_tables.CONFIGURATION)
    said: list[str] = []
    once, facts = ncu(
        tmp_path, recording, str(census), "distinct", [], said.append, pages_of(tmp_path, recording, set(firsts["id"]))
    )
    assert len(once) == len(firsts) == facts["rows"] < len(every) and not said and facts["not_as_planned"] == []
    assert once["launches"].sum() == len(every)
    # The first of each stands for all of its configuration, and need not be like them.
    assert (once["multiplicity"] == once["launches"]).all() and once["launch"].tolist() == firsts.index.tolist()
    times = every.groupby(ncu_tables.CONFIGURATION)["gpu__time_duration.sum"]
    expected = (times.max() / times.min()).reindex(pd.MultiIndex.from_frame(once[ncu_tables.CONFIGURATION]))
    np.testing.assert_allclose(once["time_spread"], expected, atol=1e-4)
    total, low, high = facts["totals"]["gpu__time_duration.sum"]
    assert total == pytest.approx((once["multiplicity"] * once["gpu__time_duration.sum"]).sum())
    assert low <= every["gpu__time_duration.sum"].sum() <= high and low < total < high


def of_a_budget(recording: Callable, tmp_path: Path) -> tuple[pd.DataFrame, str, list[str], set[int]]:
    """The census, its file, the words of a budgeted run, and the launches that they choose: the third of each kernel."""
    every, _ = ncu(tmp_path, recording, None, "all", [])
    every.to_csv(tmp_path / "census.census_csv_name", index=False)
    number = every.groupby("mangled").cumcount() + 1
    names = "|".join(map(re.escape, every.loc[number == 3, "mangled"]))
    words = ["ncu", "--kernel-name-base", "mangled", "--kernel-id", f"::regex:^({names})$:^(3|4)$"]
    chosen = every[every["mangled"].isin(every.loc[number == 3, "mangled"]) & number.isin([3, 4])]
    return every, str(tmp_path / "census.census_csv_name"), words, set(chosen["id"])


def test_rows_of_a_budget_are_the_launches_that_were_profiled(tmp_path: Path, recording: Callable) -> None:
    every, census, words, chosen = of_a_budget(recording, tmp_path)
    said: list[str] = []
    pages = pages_of(tmp_path, recording, chosen)
    rows, facts = ncu(tmp_path, recording, census, "distinct", [], said.append, pages, words)
    assert not said and facts["not_as_planned"] == []
    assert every.loc[rows["launch"], "id"].tolist() == rows["id"].tolist() and rows["as_planned"].all()
    # Some are not the first of their configuration, or this would show nothing.
    firsts = every.drop_duplicates(ncu_tables.CONFIGURATION)["id"]
    assert not set(rows["id"]) <= set(firsts)
    weights = rows.groupby(ncu_tables.CONFIGURATION)["multiplicity"].sum()
    counted = rows.groupby(ncu_tables.CONFIGURATION)["launches"].first().astype(float)
    pd.testing.assert_series_equal(weights, counted, check_names=False)


def test_launches_that_were_not_profiled_as_planned_are_said(tmp_path: Path, recording: Callable) -> None:
    every, census, words, chosen = of_a_budget(recording, tmp_path)
    said: list[str] = []
    lost = every[every["id"].isin(chosen)].groupby("mangled").filter(lambda rows: len(rows) == 2).iloc[0]
    pages = pages_of(tmp_path, recording, chosen - {lost["id"]})
    rows, facts = ncu(tmp_path, recording, census, "distinct", [], said.append, pages, words)
    assert len(said) == 1 and "have another number of profiled launches than the plan and the census say" in said[0]
    assert facts["not_as_planned"] == [lost["function"]] and lost["function"] in said[0]
    same = (rows[ncu_tables.CONFIGURATION] == lost[ncu_tables.CONFIGURATION]).all(axis=1)
    assert not rows.loc[same, "as_planned"].any() and rows.loc[~same, "as_planned"].all()
    assert rows["multiplicity"].notna().all()


def test_each_process_is_held_against_what_was_profiled(tmp_path: Path, recording: Callable) -> None:
    every, census, words, chosen = of_a_budget(recording, tmp_path)
    for rank in (0, 1):
        for kind, page in zip(("mangled", "demangled"), pages_of(tmp_path, recording, chosen), strict=True):
            (tmp_path / "pages").mkdir(exist_ok=True)
            shutil.copy(page, tmp_path / "pages" / f"node.{rank}.{kind}.csv")
    facts = sidecar(tmp_path, command=words, ranks=[{}, {}])
    rows = processes(tmp_path, facts, census, "distinct")
    assert json.loads((tmp_path / "o.json").read_text())["units"]["gpu__time_duration.sum"] == "ns"
    assert rows.groupby("rank").size().nunique() == 1 and set(rows["rank"]) == {0, 1}
    assert every.loc[rows["launch"], "id"].tolist() == rows["id"].tolist()


def test_ncu_counts_that_nobody_knows_stay_empty(tmp_path: Path, recording: Callable) -> None:
    table, _ = ncu(tmp_path, recording, None, "5", [])
    assert table["launches"].isna().all()


def test_ncu_metrics_that_the_gpu_does_not_have_are_named(tmp_path: Path, recording: Callable) -> None:
    asked = ["gpu__time_duration.sum", "sm__no_such.sum", "launch__registers_per_thread", "group:memory__all"]
    _, facts = ncu(tmp_path, recording, None, "all", asked)
    assert facts["missing_metrics"] == ["sm__no_such.sum"]


def test_ncu_metrics_of_other_names_on_this_gpu_are_not_missing(tmp_path: Path, recording: Callable) -> None:
    # The census has the time by this name, and no DRAM bytes by any.
    asked = ["gpu__time_duration.avg", "dram__bytes_read.sum"]
    _, facts = ncu(tmp_path, recording, None, "all", asked)
    assert facts["missing_metrics"] == ["dram__bytes_read.sum"]


def nsys(folder: Path, sqlite: Path, said: Callable = print, **facts: object) -> tuple[str, str, str]:
    """Paths of what is exported of a trace: table, steps, sidecar."""
    folder.mkdir(exist_ok=True)
    out = tuple(str(folder / name) for name in ("o.csv", "s.csv", "o.csv.json"))
    export_nsys.main(str(sqlite), sidecar(folder, **{"capture": "window", **facts}), *out, said)
    return out


def test_nsys(tmp_path: Path, recording: Callable) -> None:
    said: list[str] = []
    exported, _, facts = nsys(tmp_path, recording("nsys/train.sqlite"), said.append)
    table = pd.read_csv(exported)
    assert list(table.columns) == nsys_tables.COLUMNS and table["launches"].sum() == 4750
    assert not said and read_json(facts)["tool"] == "x"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_nsys_without_launches_is_right_on_a_cpu_only(tmp_path: Path, device: str) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id, value)")
    if device == "cpu":
        exported, *_ = nsys(tmp_path, path, device_type=device)
        assert Path(exported).read_text() == ",".join(nsys_tables.COLUMNS) + "\n"
    else:
        with pytest.raises(DataError, match=r"a\.sqlite holds no kernel launch although the cell ran on a GPU"):
            nsys(tmp_path, path, device_type=device)


@pytest.mark.parametrize(("cut", "steps"), [(None, 6), ("in its sixth step", 5), ("in its second", 1)])
def test_what_a_whole_run_took_per_step_is_what_its_window_takes(
    tmp_path: Path, recording: Callable, cut: str | None, steps: int
) -> None:
    """The recording of ten steps as if four of them had been warm-up, and as if the trace had ended early."""
    whole, window = of_a_run(tmp_path, recording, cut)
    alone = nsys(tmp_path / "window", window, cell={"window": steps, "steps": 10})
    more = nsys(tmp_path / "run", whole, capture="run", cell={"window": 6, "steps": 10})
    per_step = []
    for exported, _, facts in (alone, more):
        joined = str(Path(exported).with_name("kernels.csv"))
        kernel_table.main(exported, facts, [], None, joined)
        per_step.append(pd.read_csv(joined))
    # Half of a step's kernels begin when its range has ended: these are not lost on it.
    pd.testing.assert_frame_equal(*per_step, rtol=1e-9)
    assert per_step[1]["launches"].sum() == pytest.approx(475) and per_step[1]["share"].sum() == pytest.approx(1)
    assert read_json(more[2])["traced_steps"] == steps
    activity = [
        cell_tables.activity([("nsys", {"model": "m", "phase": "train"}, pd.read_csv(exported), read_json(facts))])
        for exported, _, facts in (alone, more)
    ]
    assert activity[1]["launches_per_step"].sum() == pytest.approx(475)
    sums = [table.groupby("name")["ns_per_step"].sum() for table in activity]
    pd.testing.assert_series_equal(*sums, rtol=1e-9)
    where = [pd.read_csv(path).loc[0] for _, path, _ in (alone, more)]
    assert where[1]["steps"] == where[0]["steps"] == max(steps - 1, 1)
    compared = ["busy_ns", "kernel_ns", "launches", "wall_ns"]
    assert where[1][compared].tolist() == pytest.approx(where[0][compared].tolist())


def of_a_run(folder: Path, recording: Callable, cut: str | None) -> tuple[Path, Path]:
    """The recording with a window from its fifth step on, cut off; and the whole steps of that window alone."""
    whole, window = folder / "whole.sqlite", folder / "window.sqlite"
    shutil.copy(recording("nsys/train.sqlite"), whole)
    text = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"
    with closing(sqlite3.connect(whole)) as database:
        steps = database.execute(
            f"SELECT start, end, globalTid FROM NVTX_EVENTS WHERE {text} = 'profzoo_step' ORDER BY start"
        ).fetchall()
        opened = steps[4][0] - 10
        last = {None: 10, "in its sixth step": 9, "in its second": 5}[cut]
        ends = (steps[last][0] + steps[last][1]) // 2 if cut else None
        columns = "start, end, eventType, text, globalTid, domainId"
        after = ends or steps[-1][1] + 10
        database.execute(
            f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, 59, 'profzoo_window', ?, 0)",
            (opened, after, steps[0][2]),
        )
        if ends:
            for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"):
                database.execute(f"DELETE FROM {table} WHERE start > ?", (ends,))
                database.execute(f"UPDATE {table} SET end = ? WHERE end > ?", (ends, ends))
            for table in ("KERNEL", "MEMCPY", "MEMSET"):
                database.execute(f"DELETE FROM CUPTI_ACTIVITY_KIND_{table} WHERE end > ?", (ends,))
            database.execute("UPDATE ANALYSIS_DETAILS SET duration = ?", (ends,))
        database.commit()
    shutil.copy(whole, window)
    kept = steps[4:last]
    with closing(sqlite3.connect(window)) as database:
        spans = " OR ".join(f"start BETWEEN {start} AND {end - 1}" for start, end, _ in kept)
        made = f"SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {spans}"
        for table in ("KERNEL", "MEMCPY", "MEMSET"):
            database.execute(f"DELETE FROM CUPTI_ACTIVITY_KIND_{table} WHERE correlationId NOT IN ({made})")
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
            database.execute(f"DELETE FROM {table} WHERE NOT ({spans})")
        database.commit()
    return whole, window


def test_a_whole_run_without_a_whole_step_says_so(tmp_path: Path, recording: Callable) -> None:
    path = tmp_path / "a.sqlite"
    shutil.copy(recording("nsys/train.sqlite"), path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM NVTX_EVENTS")
        database.commit()
    said: list[str] = []
    exported, _, facts = nsys(tmp_path / "run", path, said.append, capture="run", cell={"window": 6, "steps": 10})
    # What it holds is all there, but belongs to no step.
    assert pd.read_csv(exported)["launches"].sum() == 4750 and read_json(facts)["traced_steps"] == 0
    assert len(said) == 1 and "holds no whole step of the window" in said[0] and "nsys.duration" in said[0]
    with pytest.raises(DataError, match=r"of lstm train holds no whole step.*nsys\.duration"):
        steps_per_export.count_profiled_steps(
            {"traced_steps": 0, "capture": "run", "cell": {"model": "lstm", "phase": "train"}}
        )


def test_a_whole_run_from_within_the_window_says_so(tmp_path: Path, recording: Callable) -> None:
    said: list[str] = []
    _, _, facts = nsys(tmp_path, recording("nsys/train.sqlite"), said.append, capture="run", cell={"window": 10})
    assert read_json(facts)["traced_steps"] == 10
    assert len(said) == 1 and "the window's beginning is not in the trace" in said[0]


def test_graphs_that_were_traced_whole_are_said(tmp_path: Path, recording: Callable) -> None:
    path = tmp_path / "a.sqlite"
    shutil.copy(recording("nsys/train.sqlite"), path)
    with closing(sqlite3.connect(path)) as database:
        (total,) = database.execute("SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, correlationId, globalPid, graphId, graphExecId)"
        )
        (process,) = database.execute("SELECT max(globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (9, ?, -1, ?, 3, 4)", (9 + total, process))
        database.commit()
    said: list[str] = []
    nsys(tmp_path, path, said.append)
    assert len(said) == 1 and "50% of GPU time" in said[0] and "nsys.cuda_graph: node" in said[0]


def torch_files(folder: Path, recording: Callable) -> tuple[str, str, str]:
    """Table, trace and sidecar of the recording."""
    facts = sidecar(folder, cell={"profiler": {"memory": False}})
    return str(recording("torch/train.torch-operators.csv")), str(DATA / "torch/train.trace.json.gz"), facts


def torch_outputs(folder: Path) -> dict[str, str]:
    """What the export makes, by name."""
    return {name: str(folder / f"{name}.csv") for name in ("csv", "launches", "modules", "ranges", "dtypes")}


def test_torch(tmp_path: Path, recording: Callable) -> None:
    export_torch.main(*torch_files(tmp_path, recording), torch_outputs(tmp_path))
    table = pd.read_csv(tmp_path / "csv.csv")
    assert set(table["kind"]) >= {"kernel", "operator", "range", "runtime"}
    assert table.loc[table["kind"] == "kernel", "count"].sum() == 108
    launches = reading.read(tmp_path / "launches.csv", owners.TABLE)
    times = table[table["kind"].isin(["kernel", "memcpy", "memset"])].groupby("kind")["device_ns"].sum()
    assert launches.groupby("kind")["ns"].sum().to_dict() == times.to_dict()


def test_torch_without_kernels_or_operators(tmp_path: Path, recording: Callable) -> None:
    operators, _, facts = torch_files(tmp_path, recording)
    empty, trace = tmp_path / "o.csv", tmp_path / "t.json.gz"
    empty.write_text(Path(operators).read_text().splitlines()[0] + "\n")
    trace.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    with pytest.raises(DataError, match=r"o\.csv holds no operator"):
        export_torch.main(str(empty), str(trace), facts, torch_outputs(tmp_path))
    with pytest.raises(DataError, match=r"t\.json\.gz holds no kernel although the cell ran on a GPU"):
        export_torch.main(operators, str(trace), facts, torch_outputs(tmp_path))


def test_nsys_stats_without_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="nsys is not on PATH"):
        export_nsys_stats.main("a.sqlite", {"osrt_sum": str(tmp_path / "o.csv")})


def test_reasons_of_skipped_reports() -> None:
    printed = (
        "Processing [a.sqlite] with [/opt/nsys/reports/gpukernsum.py]... \n"
        "SKIPPED: a.sqlite does not contain CUDA kernel data.\n"
        "Processing [a.sqlite] with [/opt/nsys/reports/osrt_sum.py]... \n"
    )
    reasons = export_nsys_stats._reasons(printed, ["cuda_gpu_kern_sum", "osrt_sum"])
    assert reasons == {"cuda_gpu_kern_sum": "does not contain CUDA kernel data"}


def test_tables_across_cells(tmp_path: Path, recording: Callable) -> None:
    folder = tmp_path / "results/mobilenetv2"
    folder.mkdir(parents=True)
    cell = {"window": 10, "steps": 13, "workload": "trimmed", "precision": "fp32"}
    run = {"parameters": 3, "batch": 8, "steps": 2, "items": 16, "window_wall_ns": 10**9, "step_ns": 5e8, "loss": 2.5}
    run |= {"peak_memory_bytes": 2**40, "peak_rss_bytes": 1, "device": "NVIDIA H200", "started": "2026-11-20T01:00:00"}
    shutil.copy(sidecar(tmp_path, cell=cell, capture="window", **run), folder / "s.json")
    (folder / "train.time.csv").write_text("step,wall_ns,gpu_ns,items\n0,1,2,8\n1,3,500000000,8\n")
    export_nsys.main(
        str(recording("nsys/train.sqlite")),
        str(folder / "s.json"),
        str(folder / "train.nsys.csv"),
        str(folder / "train.nsys-steps.csv"),
        str(folder / "train.nsys.csv.json"),
    )
    inputs = {tool: [str(folder / f"train.{tool}.csv")] for tool in ("time", "nsys")}
    inputs |= {f"{tool}_sidecar": [str(folder / "s.json")] for tool in ("time", "nsys")}
    joined = str(folder / "train.kernels.csv")
    kernel_table.main(inputs["nsys"][0], str(folder / "s.json"), [], None, joined)
    inputs["kernels"] = [joined]
    inputs["steps"] = [str(folder / "train.nsys-steps.csv")]
    outputs = {
        name: str(tmp_path / f"{name}.csv")
        for name in ("cells", "activity", "kernels", "ranges", "steps", "agreement", "coverage", "repetition")
    }
    tabulate.main(inputs, outputs)
    tables = {name: pd.read_csv(path) for name, path in outputs.items()}
    assert tables["cells"].loc[0, ["model", "phase", "peak_memory_bytes"]].tolist() == ["mobilenetv2", "train", 2**40]
    assert tables["activity"]["launches_per_step"].sum() == pytest.approx(475)
    assert tables["ranges"].set_index("range")["launches_per_step"].to_dict() == pytest.approx(
        {"backward": 249, "forward": 206, "optimizer": 20}
    )
    assert tables["agreement"].loc[0, "nsys_launches"] == pytest.approx(475)
    kernels = tables["kernels"]
    assert kernels["launches"].sum() == pytest.approx(475) and set(kernels["source"]) == {"nsys"}
    assert {"convolution", "gemm", "normalisation"} < set(kernels["class"]) and "other" not in set(kernels["class"])
    steps = tables["steps"].iloc[0]
    assert (steps["model"], steps["step_ns"], steps["launches"]) == ("mobilenetv2", 5e8, 475)
    assert steps["busy_share"] == pytest.approx(steps["busy_ns"] / 5e8)
    assert steps["nsys_busy_share"] == pytest.approx(steps["busy_ns"] / steps["wall_ns"])
