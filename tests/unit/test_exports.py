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

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import read_json
from profzoo.tables import across_cells, kernel_table
from profzoo.tools.ncu import export as export_ncu
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import command as export_nsys_stats
from profzoo.tools.nsys.tables import COLUMNS, export_trace
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
) -> tuple[pd.DataFrame, dict]:
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


@pytest.fixture(scope="module")
def whole(recording: Callable, tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, dict, str]:
    """The export of all launches, its sidecar, and its path as a census."""
    folder = tmp_path_factory.mktemp("census")
    # This GPU has the time by the second name too, and no DRAM bytes by any.
    asked = ["gpu__time_duration.sum", "gpu__time_duration.avg", "sm__no_such.sum", "dram__bytes_read.sum",
             "launch__registers_per_thread", "group:memory__all"]  # fmt: skip
    table, facts = ncu(folder, recording, None, "all", asked)
    return table, facts, census_of(table, folder)


def census_of(table: pd.DataFrame, folder: Path) -> str:
    table.to_csv(folder / "census.census_csv_name", index=False)
    return str(folder / "census.census_csv_name")


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


def test_ncu_census_counts_itself(whole: tuple) -> None:
    table, facts, _ = whole
    assert len(table) == facts["rows"] == 468 and table["launches"].notna().all() and facts["other_choices"] == []
    assert facts["missing_metrics"] == ["sm__no_such.sum", "dram__bytes_read.sum"] and facts["no_value"] == {}
    assert facts["units"]["gpu__time_duration.sum"] == "ns" and facts["tool"] == "x"


def test_ncu_counts_come_from_the_census(tmp_path: Path, recording: Callable, whole: tuple) -> None:
    """Of 100 launches less those of one function, which others of the 150 that were profiled then lack."""
    table = whole[0].head(150)
    function = table["function"].value_counts().index[-1]
    kept = table[table["function"] != function].iloc[:100]
    counts = kept.groupby(ncu_tables.CONFIGURATION)["id"].transform("size")
    census = census_of(kept.assign(id=range(100), launches=counts), tmp_path)
    said: list[str] = []
    pages = pages_of(tmp_path, recording, set(range(150)))
    again, facts = ncu(tmp_path, recording, census, "1000", [], said.append, pages)
    known = again["launches"].notna()
    assert known[kept.index].all() and not known[again["function"] == function].any()
    assert again[known].drop_duplicates(ncu_tables.CONFIGURATION)["launches"].sum() == 100
    assert function in facts["other_choices"] and function in said[0] and "deterministic: true" in said[0]


def test_values_that_ncu_did_not_have_are_counted(tmp_path: Path, recording: Callable) -> None:
    pages = pages_of(tmp_path, recording, set(range(20)))
    header, units, *rows = csv.reader(Path(pages[0]).read_text().splitlines())
    at = header.index("launch__waves_per_multiprocessor")
    rows[3][at] = rows[7][at] = "n/a"
    with Path(pages[0]).open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([header, units, *rows])
    table, facts = ncu(tmp_path, recording, None, "5", [], pages=pages)
    assert facts["no_value"] == {"launch__waves_per_multiprocessor": 2}
    assert table["launch__waves_per_multiprocessor"].notna().sum() == 18
    # Without a census nobody knows how often each was launched.
    assert table["launches"].isna().all()


def test_processes_whose_reports_differ_in_units_are_refused(tmp_path: Path, recording: Callable) -> None:
    (tmp_path / "pages").mkdir()
    for rank, unit in ((0, "warp"), (1, "thread")):
        for kind, page in zip(("mangled", "demangled"), pages_of(tmp_path, recording, {0, 1, 2}), strict=True):
            text = Path(page).read_text().replace('"warp"', f'"{unit}"')
            (tmp_path / "pages" / f"node.{rank}.{kind}.csv").write_text(text)
    facts = sidecar(tmp_path, command=["ncu"], ranks=[{}, {}])
    with pytest.raises(DataError, match=r"rank 1 has .* in thread, rank 0 in warp"):
        processes(tmp_path, facts, None, "all")


@pytest.fixture(scope="module")
def budget(whole: tuple) -> tuple[pd.DataFrame, str, list[str], set[int]]:
    """The census, its file, the words of a budgeted run, and the launches that they choose: the third of each kernel."""
    every, _, census = whole
    number = every.groupby("mangled").cumcount() + 1
    names = "|".join(map(re.escape, every.loc[number == 3, "mangled"]))
    words = ["ncu", "--kernel-name-base", "mangled", "--kernel-id", f"::regex:^({names})$:^(3|4)$"]
    chosen = every[every["mangled"].isin(every.loc[number == 3, "mangled"]) & number.isin([3, 4])]
    return every, census, words, set(chosen["id"])


def test_launches_that_were_not_profiled_as_planned_are_said(
    tmp_path: Path, recording: Callable, budget: tuple
) -> None:
    every, census, words, chosen = budget
    said: list[str] = []
    lost = every[every["id"].isin(chosen)].groupby("mangled").filter(lambda rows: len(rows) == 2).iloc[0]
    pages = pages_of(tmp_path, recording, chosen - {lost["id"]})
    rows, facts = ncu(tmp_path, recording, census, "distinct", [], said.append, pages, words)
    assert len(said) == 1 and "have another number of profiled launches than the plan and the census say" in said[0]
    assert facts["not_as_planned"] == [lost["function"]] and lost["function"] in said[0]
    same = (rows[ncu_tables.CONFIGURATION] == lost[ncu_tables.CONFIGURATION]).all(axis=1)
    assert not rows.loc[same, "as_planned"].any() and rows.loc[~same, "as_planned"].all()
    assert rows["multiplicity"].notna().all()


def test_each_process_is_held_against_what_was_profiled(tmp_path: Path, recording: Callable, budget: tuple) -> None:
    every, census, words, chosen = budget
    for rank in (0, 1):
        for kind, page in zip(("mangled", "demangled"), pages_of(tmp_path, recording, chosen), strict=True):
            (tmp_path / "pages").mkdir(exist_ok=True)
            shutil.copy(page, tmp_path / "pages" / f"node.{rank}.{kind}.csv")
    facts = sidecar(tmp_path, command=words, ranks=[{}, {}])
    rows = processes(tmp_path, facts, census, "distinct")
    assert json.loads((tmp_path / "o.json").read_text())["units"]["gpu__time_duration.sum"] == "ns"
    assert rows.groupby("rank").size().nunique() == 1 and set(rows["rank"]) == {0, 1}
    assert every.loc[rows["launch"], "id"].tolist() == rows["id"].tolist()
    # Some are not the first of their configuration, or this would show nothing.
    assert (
        not set(rows["id"]) <= set(every.drop_duplicates(ncu_tables.CONFIGURATION)["id"]) and rows["as_planned"].all()
    )
    weights = rows.groupby(["rank", *ncu_tables.CONFIGURATION]).agg({"multiplicity": "sum", "launches": "first"})
    assert weights["multiplicity"].tolist() == pytest.approx(weights["launches"].tolist())


def nsys(folder: Path, sqlite: Path, said: Callable = print, **facts: object) -> tuple[str, str, str]:
    """Paths of what is exported of a trace: table, steps, sidecar."""
    folder.mkdir(exist_ok=True)
    out = tuple(str(folder / name) for name in ("o.csv", "s.csv", "o.csv.json"))
    export_trace(str(sqlite), sidecar(folder, **{"capture": "window", **facts}), *out, said)
    return out


def test_nsys_without_launches_is_right_on_a_cpu_only(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id, value)")
    exported, *_ = nsys(tmp_path, path, device_type="cpu")
    assert Path(exported).read_text() == ",".join(COLUMNS) + "\n"
    with pytest.raises(DataError, match=r"a\.sqlite holds no kernel launch although the cell ran on a GPU"):
        nsys(tmp_path, path, device_type="cuda")


def test_a_whole_run_from_within_the_window_says_so(tmp_path: Path, recording: Callable) -> None:
    said: list[str] = []
    _, _, facts = nsys(tmp_path, recording("nsys/train.sqlite"), said.append, capture="run", cell={"window": 10})
    assert read_json(facts)["traced_steps"] == 10
    assert len(said) == 1 and "the window's beginning is not in the trace" in said[0]


def test_graphs_that_were_traced_whole_are_said(tmp_path: Path, recording: Callable) -> None:
    """One that takes as long as all kernels."""
    graphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    sums = "SELECT 9, 9 + sum(end - start), -1, max(globalPid), 3, 4 FROM CUPTI_ACTIVITY_KIND_KERNEL"
    columns = "(start, end, correlationId, globalPid, graphId, graphExecId)"
    path = tmp_path / "a.sqlite"
    shutil.copy(recording("nsys/train.sqlite"), path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE {graphs} {columns}")
        database.execute(f"INSERT INTO {graphs} {sums}")
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
    facts = sidecar(tmp_path, cell=cell, capture="window", **run)
    made = {name: str(folder / f"train.{name}.csv") for name in ("time", "nsys", "kernels", "nsys-steps")}
    Path(made["time"]).write_text("step,wall_ns,gpu_ns,items\n0,1,2,8\n1,3,500000000,8\n")
    said: list[str] = []
    told = str(folder / "told.json")
    export_trace(str(recording("nsys/train.sqlite")), facts, made["nsys"], made["nsys-steps"], told, said.append)
    assert not said and read_json(told)["tool"] == "x" and list(pd.read_csv(made["nsys"]).columns) == COLUMNS
    kernel_table.main(made["nsys"], facts, [], None, made["kernels"])
    inputs = {name: [path] for name, path in made.items()} | {"steps": [made["nsys-steps"]]}
    inputs |= {f"{tool}_sidecar": [facts] for tool in ("time", "nsys")}
    names = ("cells", "activity", "kernels", "ranges", "steps", "agreement", "coverage", "repetition")
    outputs = {name: str(tmp_path / f"{name}.csv") for name in names}
    across_cells.tabulate_cells(inputs, outputs)
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
