"""Ranges that a program opened itself: how they nest, whose launches are theirs, and that their times add up."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.profiler import record_function

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.report import cell_data
from profzoo.tables import cell_tables, schemas, user_ranges
from profzoo.tables.layers import Others
from profzoo.tables.user_ranges import OfTorch
from profzoo.tools import user_ranges as nesting
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from profzoo.tools.torch import user_ranges as torch_ranges
from tests import owned
from tests.unit.test_nsys_tables import ONE, export, kernel

MAIN, AUTOGRAD, LOADER = ONE + 1, ONE + 2, ONE + 3
STEPS = pd.DataFrame({"start": [100, 200], "end": [200, 300], "process": ONE, "thread": MAIN})
PUSH_POP, START_END, DOMAIN = 59, 60, 75


def nested(*rows: tuple, steps: pd.DataFrame = STEPS) -> nesting.UserRanges:
    """Ranges of rows: name, start, end, thread, and whether the process shares it."""
    table = pd.DataFrame([(*row, False)[:5] for row in rows], columns=["name", "start", "end", "thread", "shared"])
    return nesting.nest_ranges(table.assign(process=ONE), steps)


def open_at(found: nesting.UserRanges, *moments: tuple[int, int]) -> list[str]:
    times, threads = (np.array(column) for column in zip(*moments, strict=True))
    return found.find_paths(times, np.full(len(times), ONE), threads).tolist()


def paths(found: nesting.UserRanges) -> dict[str, tuple[str, float, float]]:
    return {row.range: (row.parent, row.calls, row.cpu_ns) for row in found.tabulate_paths().itertuples()}


def test_ranges_nest_as_they_were_opened() -> None:
    found = nested(("a", 110, 190, MAIN), ("b", 120, 150, MAIN), ("a", 210, 290, MAIN), ("b", 290, 295, MAIN))
    assert paths(found) == {
        "(step)": ("", 2, 200), "a": ("", 2, 160), "a > b": ("a", 1, 30), "b": ("", 1, 5),
    }  # fmt: skip
    # From when it was opened to before it was closed.
    moments = [(109, MAIN), (110, MAIN), (119, MAIN), (120, MAIN), (149, MAIN), (150, MAIN), (190, MAIN), (292, MAIN)]
    assert open_at(found, *moments) == ["", "a", "a", "a > b", "a > b", "a", "", "b"]


def test_ranges_that_meet_with_rounded_ends_follow_one_another() -> None:
    """One that ends 1 ns behind the next one's beginning, and one that ends 1 ns behind what it is within."""
    found = nested(("a", 100_000, 150_000, MAIN), ("b", 149_999, 190_000, MAIN), ("c", 150_000, 190_001, MAIN),
                   steps=pd.DataFrame({"start": [0], "end": [200_000], "process": ONE, "thread": MAIN}))  # fmt: skip
    assert paths(found) == {
        "(step)": ("", 1, 200_000),
        "a": ("", 1, 50_000),
        "b": ("", 1, 40_001),
        "b > c": ("b", 1, 40_001),
    }


def test_what_crosses_the_bounds_of_steps_counts_within_them() -> None:
    """An epoch was opened before, an iteration ends shortly after its step; what is in no step is left out."""
    found = nested(
        ("epoch", 10, nesting.NEVER, MAIN), ("iteration", 50, 105, MAIN), ("iteration", 110, 205, MAIN),
        ("iteration", 210, 305, MAIN), ("iteration", 310, 405, MAIN), ("before", 20, 90, MAIN),
    )  # fmt: skip
    assert paths(found) == {
        "(step)": ("", 2, 200), "epoch": ("", 0, 200), "epoch > iteration": ("epoch", 2, 5 + 95 + 90),
    }  # fmt: skip


def test_launches_of_autograd_belong_to_what_the_main_thread_had_open() -> None:
    found = nested(("backward", 120, 180, MAIN), ("hook", 130, 140, AUTOGRAD))
    assert paths(found)["backward > hook"] == ("backward", 1, 10)
    moments = [(125, AUTOGRAD), (135, AUTOGRAD), (145, AUTOGRAD), (135, MAIN), (185, AUTOGRAD)]
    assert open_at(found, *moments) == ["backward", "backward > hook", "backward", "backward", ""]


def test_ranges_of_a_loader_are_not_within_what_they_outlast() -> None:
    rows = [("work", 110, 190, MAIN), ("load", 120, 130, LOADER), ("read", 122, 125, LOADER)]
    assert "work > load > read" in paths(nested(*rows))
    assert {"load", "load > read", "work"} < {*paths(nested(*rows, ("load", 185, 195, LOADER)))}


def test_a_range_that_another_thread_ended_is_of_the_process() -> None:
    found = nested(("request", 110, 170, MAIN, True), ("a", 120, 130, LOADER), ("b", 160, 180, MAIN))
    assert paths(found)["request > a"] == ("request", 1, 10) and "b" in paths(found)
    # Neither is within the other: the one opened last counts.
    moments = [(115, AUTOGRAD), (165, MAIN), (175, MAIN), (125, LOADER), (135, LOADER)]
    assert open_at(found, *moments) == ["request", "b", "b", "request > a", "request"]


def test_numbers_of_iterations_are_one_range() -> None:
    steps = pd.DataFrame({"start": range(0, 600, 100), "end": range(100, 700, 100), "process": ONE, "thread": MAIN})
    rows = [(f"iteration {place}", 100 * place + 10, 100 * place + 90, MAIN) for place in range(6)]
    rows += [(f"block{part}", 100 * place + 20 * part, 100 * place + 20 * part + 10, MAIN)
             for place in range(6) for part in (1, 2)]  # fmt: skip
    found = paths(nested(*rows, ("once 7", 70, 80, MAIN), steps=steps))
    assert [*found] == ["(step)", "iteration #", "iteration # > block1", "iteration # > block2", "iteration # > once 7"]
    assert found["iteration #"][1] == 6


def test_names_that_tables_use_are_told_apart() -> None:
    found = nested(("(step)", 110, 190, MAIN), ("x > y", 120, 130, MAIN), ("", 140, 150, MAIN))
    assert [*paths(found)] == ["(step)", "step", "step > x>y", "step > unnamed"]


def annotate(path: Path, rows: list[tuple], domains: dict[int, str] | None = None) -> Path:
    """Add to an export ranges: start, end, thread, text, event type and domain."""
    with closing(sqlite3.connect(path)) as database:
        columns = "start, end, globalTid, text, eventType, domainId"
        rows = [*rows, *((0, None, MAIN, name, DOMAIN, number) for number, name in (domains or {}).items())]
        database.executemany(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.commit()
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two steps with three launches each; the last of autograd's thread."""
    steps = [(100, 200, MAIN, "step"), (200, 300, MAIN, "step")]
    calls, kernels = [], []
    for place, begin in enumerate((100, 200)):
        for part, (when, thread, ns) in enumerate([(15, MAIN, 5), (40, MAIN, 7), (70, AUTOGRAD, 11)]):
            calls.append((begin + when, 10 * place + part, thread))
            kernels.append(kernel(begin + when + 3, begin + when + 3 + ns, 10 * place + part, ONE))
    # In no step.
    calls.append((50, 90, MAIN))
    kernels.append(kernel(55, 60, 90, ONE))
    path = export(tmp_path / "t.sqlite", kernels, calls, steps)
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN streamId INTEGER DEFAULT 7")
        database.commit()
    return path


def of_nsys(path: Path, **others: object) -> pd.DataFrame:
    write_json({"cell": {"window": 2}, "capture": "window"}, path.with_suffix(".json"))
    csv = path.with_suffix(".csv")
    user_ranges.write_user_ranges(
        OfTorch(), Others(nsys=str(path), sidecar=str(path.with_suffix(".json")), **others), str(csv)
    )
    return reading.read(csv, user_ranges.TABLE)


def test_launches_have_the_ranges_of_any_domain(small: Path) -> None:
    rows = [(begin + low, begin + high, MAIN, name, kind, domain) for begin in (100, 200) for low, high, name, kind,
            domain in [(10, 90, "iteration", PUSH_POP, 0), (35, 60, "forward", PUSH_POP, 4),
                       (12, 80, "ncclAllReduce", PUSH_POP, 7), (12, 80, "all", PUSH_POP, 6),
                       (12, 80, "module:a.b:Linear", PUSH_POP, 1), (36, 50, "aten::mm, seq = 7", PUSH_POP, 0)]]  # fmt: skip
    rows.append((165, 169, AUTOGRAD, "handle", START_END, 0))
    table = of_nsys(annotate(small, rows, {4: "train", 6: "NCCL"}))
    assert table[["range", "parent", "calls", "cpu_ns", "launches", "self_ns", "total_ns"]].to_numpy().tolist() == [
        ["(step)", "", 1, 100, 3, 0, 23],
        ["iteration", "(step)", 1, 80, 3, 5 + 11, 23],
        ["iteration > forward@train", "iteration", 1, 25, 1, 7, 7],
        ["iteration > handle", "iteration", 0.5, 2, 0, 0, 0],
        ["(other)", "(step)", *[pytest.approx(np.nan, nan_ok=True)] * 2, 0, 0, 0],
    ]  # fmt: skip
    assert set(table["api"]) == {"nvtx"} and set(table["tool"]) == {"nsys"} and set(table["clock"]) == {"gpu"}


def test_a_range_that_was_never_closed_is_open_to_the_end(small: Path) -> None:
    table = of_nsys(annotate(small, [(130, None, MAIN, "rest", START_END, 0), (110, 0, MAIN, "epoch", PUSH_POP, 0)]))
    found = table.set_index("range")
    assert found["self_ns"].to_dict() == {"(step)": 0, "epoch": 2.5, "epoch > rest": 20.5, "(other)": 0}
    assert found.loc["epoch > rest", "cpu_ns"] == 85


def test_without_own_ranges_there_are_no_rows(small: Path) -> None:
    assert of_nsys(small).empty
    assert of_nsys(annotate(small, [(10, 90, MAIN, "warm-up", PUSH_POP, 0)])).empty


class Annotated(nn.Module):
    """Two layers in ranges of its own."""

    def __init__(self) -> None:
        """Small."""
        super().__init__()
        self.first, self.second = nn.Linear(19, 23), nn.Linear(23, 4)

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """From (batch, 19) to (batch, 4)."""
        with record_function("model"):
            with record_function("first"):
                flow = self.first(flow)
            return self.second(flow)


def test_record_function_of_torch(tmp_path: Path) -> None:
    events = owned.of_steps(list(owned.steps(Annotated(), count=4, accumulate=1)))
    trace = torch_trace.make_trace(events)
    found = torch_ranges.find_user_ranges(trace)
    assert found is not None and {*paths(found)} == {"(step)", "model", "model > first"}
    launches = torch_ranges.add_user_ranges(owners.tabulate_operators(trace), trace, found, gpu=False)
    layer = launches[(launches["operator"] == "aten::addmm") & launches["step"].notna()]
    assert set(zip(layer["shapes"].str.contains("23, 4"), layer["user_range"], strict=True)) == {
        (False, "model > first"), (True, "model"),
    }  # fmt: skip
    assert set(launches.loc[launches["direction"] == "backward", "user_range"]) == {""}
    files = OfTorch(*(str(tmp_path / name) for name in ("launches.csv", "ranges.csv", "s.json")))
    write_csv(launches, files.launches)
    write_csv(torch_ranges.tabulate_user_ranges(found), files.ranges)
    steps = int(launches["step"].nunique())
    write_json({"cell": {"window": steps}}, files.sidecar)
    user_ranges.write_user_ranges(files, Others(), str(tmp_path / "r.csv"))
    table = reading.read(tmp_path / "r.csv", user_ranges.TABLE).set_index("range")
    assert set(table["api"]) == {"record_function"} and set(table["clock"]) == {"cpu"}
    assert table.loc["model", "calls"] == 1 and table.loc["model > first", "parent"] == "model"
    in_steps = launches[launches["step"].notna()]["ns"].sum() / steps
    assert table.loc["(step)", "total_ns"] == pytest.approx(in_steps) == table["self_ns"].sum()
    assert table.loc["model", "total_ns"] <= table.loc["model", "cpu_ns"] <= table.loc["(step)", "cpu_ns"]


def test_what_torch_opens_itself_is_no_range_of_the_programs() -> None:
    names = ["Optimizer.step#AdamW.step", "Optimizer.zero_grad#SGD.zero_grad", "ProfilerStep#3", "profzoo:step",
             "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "DistributedDataParallel.forward",
             "nccl:all_reduce", "Torch-Compiled Region: 0/0", "## Call CompiledFxGraph fabc ##"]  # fmt: skip
    assert [name for name in names if not torch_ranges.OTHERS.fullmatch(name)] == []
    own = ["iteration", "Optimizer", "nccl", "compile", "forward"]
    assert [name for name in own if torch_ranges.OTHERS.fullmatch(name)] == []
    assert torch_ranges.find_user_ranges(torch_trace.make_trace([])) is None
    assert torch_ranges.tabulate_user_ranges(None).empty


def across(table: pd.DataFrame) -> pd.DataFrame:
    parts = [{"model": model, "phase": "train", "tool": "nsys", "clock": "gpu", "range": "forward",
              "ns_per_step": 9.0, "launches_per_step": 2.0} for model in ("m", "n")]  # fmt: skip
    cell = {"model": "m", "phase": "train"}
    return user_ranges.append_user_ranges(
        pd.DataFrame(parts), [(cell, table), ({**cell, "model": "n"}, table.iloc[:0])]
    )


def test_the_table_of_ranges_has_them_behind_parts_of_the_step(small: Path, tmp_path: Path) -> None:
    # One goes by the name of a part.
    table = across(of_nsys(annotate(small, [(110, 190, MAIN, "forward", PUSH_POP, 0)])))
    write_csv(table, tmp_path / "ranges.csv")
    read = schemas.read_table("ranges", tmp_path / "ranges.csv")
    assert read["range"].tolist() == ["forward", "forward", "(step)", "forward", "(other)"]
    assert read["api"].tolist() == ["", "", "nvtx", "nvtx", "nvtx"] and set(read["model"]) == {"m", "n"}
    assert read["ns_per_step"].tolist() == [9, 9, 23, 11.5, 11.5]
    parts = user_ranges.select_parts(read)
    assert parts["range"].tolist() == ["forward", "forward"] and list(parts) == list(cell_tables.ranges([]))
    write_csv(pd.concat([read, read.tail(1)]), tmp_path / "ranges.csv")
    with pytest.raises(DataError, match="row 6 is there twice"):
        schemas.read_table("ranges", tmp_path / "ranges.csv")


def test_sums_and_shares_are_of_the_whole_step_be_it_a_nanosecond() -> None:
    table = pd.DataFrame({"range": ["(step)", "a", "a > b"], "parent": ["", "(step)", "a"]})
    own = pd.DataFrame({"launches": [2.0, 3.0], "total_ns": [0.25, 0.75]}, index=["a", "a > b"])
    found = user_ranges._sums(table, own)
    assert found["launches"] == [5.0, 5.0, 3.0] and found["total_ns"] == [1.0, 1.0, 0.75]
    assert found["self_ns"] == [0.0, 0.25, 0.75] and list(found["share"]) == [1.0, 1.0, 0.75]


def test_without_own_ranges_the_table_of_ranges_is_as_it_was() -> None:
    parts = across(user_ranges.TABLE.empty())
    assert list(parts) == list(cell_tables.ranges([])) and len(parts) == 2


def test_the_page_has_a_tree_of_them(small: Path) -> None:
    rows = [(110, 190, MAIN, "a.b", PUSH_POP, 0), (135, 160, MAIN, "c", PUSH_POP, 0)]
    table = across(of_nsys(annotate(small, rows)))
    block = json.loads(str(cell_data.cell_block({"ranges": table[table["model"] == "m"]}, None)))
    tree = block["ranges"]
    names = [tree["name"]["words"][place] for place in tree["name"]["places"]]
    assert names == ["(step)", "a.b", "a.b > c", "(other)"] and tree["ns"] == [23, 11.5, 3.5, 11.5]
    assert "0.5× per step, 40 ns of CPU time" in tree["type"]["words"]
    assert cell_data.cell_block({"ranges": table[table["model"] == "n"]}, None) is None


def test_both_kinds_of_ranges_are_trees_of_their_own(small: Path) -> None:
    table = of_nsys(annotate(small, [(110, 190, MAIN, "a", PUSH_POP, 0)]))
    both = across(pd.concat([table, table.assign(api="record_function")], ignore_index=True))
    tree = cell_data.select_tree(both[both["model"] == "m"])
    assert tree is not None and tree["name"].tolist() == [
        "nvtx", "nvtx > a", "nvtx > (other)", "record_function", "record_function > a", "record_function > (other)",
    ]  # fmt: skip
    assert tree["parent"].tolist() == ["(step)", "nvtx", "nvtx", "(step)", "record_function", "record_function"]


def test_on_a_cpu_nvtx_has_host_time_alone(small: Path) -> None:
    with closing(sqlite3.connect(small)) as database:
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        database.commit()
    table = of_nsys(annotate(small, [(110, 190, MAIN, "a", PUSH_POP, 0)]))
    assert table["total_ns"].isna().all() and set(table["clock"]) == {"cpu"}
    tree = cell_data.select_tree(across(table).query("model == 'm'"))
    assert tree is not None and tree[["name", "ns", "share"]].to_numpy().tolist() == [
        ["(step)", 100, 1], ["a", 40, 0.4],
    ]  # fmt: skip
