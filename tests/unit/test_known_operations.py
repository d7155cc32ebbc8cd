"""Operations of launch configurations: which earlier tables tell, and which launches are filled with them."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import known_operations
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

FMA, ADD = (f"smsp__sass_thread_inst_executed_op_{what}_pred_on" for what in ("ffma", "fadd"))
ASKED = [f"{FMA}.sum", f"{ADD}.sum"]
LIKE: Any = {"gpu": "H100", "torch": "2.11", "cuda": "13.0"}


def launches(kernels: str, times: Any, fma: Any = 100, **columns: Any) -> pd.DataFrame:
    """Counted launches of kernels of one letter each; times in ns."""
    table = pd.DataFrame({"id": range(len(kernels)), "mangled": list(kernels), GPU_TIME: times, f"{FMA}.sum": fma})
    fixed = {"kernel": "k", "function": "f", "range": "", "stream": 7, "launches": 1, f"{FMA}.max": 50}
    return table.assign(**dict.fromkeys(KEYS[1:], 1), **fixed, **{f"{ADD}.sum": 7, "lts__t_bytes.sum": 9}, **columns)


def known(census: pd.DataFrame, *tables: pd.DataFrame, asked: Any = ASKED) -> Any:
    named = [(f"t{place}", table, {f"{FMA}.sum": "inst"}) for place, table in enumerate(tables)]
    return known_operations.find_known(census, named, asked)


def kernels_of(found: Any) -> list[str]:
    return [row[found["columns"].index("mangled")] for row in found["rows"]]


def test_a_configuration_is_known_by_its_counts_and_times() -> None:
    """b was counted with another grid, c with counts that differ, d took half as long, and e is uneven here."""
    there = launches("abccde", 1e4, [100.0, 100, 100, 101, 100, 100])
    there.loc[1, "grid_x"] = 2
    there.loc[4, GPU_TIME] = 5.9e3
    here = launches("abcdee", [1e4, 1e4, 1e4, 1e4, 1e4, 1.31e4])
    found = known(here, there)
    assert kernels_of(found) == ["a"] and found["sources"] == ["t0"] and found["units"] == {f"{FMA}.sum": "inst"}
    assert dict(zip(found["columns"], found["rows"][0], strict=True)) == {
        "mangled": "a", **dict.fromkeys(KEYS[1:], 1), f"{FMA}.sum": 100, f"{FMA}.max": 50, f"{ADD}.sum": 7,
    }  # fmt: skip
    # Just within: counts by a thousandth, times by half of the shorter, and those of one cell by three tenths.
    there.loc[3, f"{FMA}.sum"] = 100.1
    there.loc[4, GPU_TIME] = 1e4 / 1.5
    here.loc[5, GPU_TIME] = 1.3e4
    assert kernels_of(known(here, there)) == ["a", "c", "d", "e"]


def test_short_launches_vary_and_are_known_all_the_same() -> None:
    assert kernels_of(known(launches("aa", [1e3, 5e3]), launches("a", 2e3))) == ["a"]
    assert kernels_of(known(launches("aa", [1e3, 5.1e3]), launches("a", 2e3))) == []


def test_later_tables_count_and_those_without_a_metric_do_not() -> None:
    first, later = launches("a", 1e4), launches("a", 1e4, 200)
    found = known(launches("a", 1e4), first, later)
    assert found["sources"] == ["t0", "t1"] and 200 in found["rows"][0] and 100 not in found["rows"][0]
    empty = {"columns": [], "rows": [], "units": {}, "sources": []}
    assert known(launches("a", 1e4), first.drop(columns=f"{ADD}.sum")) == empty
    assert known(launches("a", 1e4), first.assign(**{f"{FMA}.sum": float("nan")})) == empty
    assert known(launches("a", 1e4)) == empty and known_operations.known_kernels(first, empty) == []


def test_a_kernel_is_known_if_all_its_configurations_are() -> None:
    here = launches("aabb", 1e4)
    here.loc[3, "block_x"] = 64
    found = known(here, launches("ab", 1e4))
    assert kernels_of(found) == ["a", "b"] and known_operations.known_kernels(here, found) == ["a"]


def test_launches_are_filled_where_nothing_was_counted() -> None:
    found = known(launches("ab", 1e4), launches("ab", 1e4, [100, 300]))
    table = launches("abx", 1e4, [None, 5, None]).astype({"smem_static_bytes": "Int64"})
    filled = known_operations.fill_operations(table, found)
    assert filled[f"{FMA}.sum"].tolist()[:2] == [100, 5] and pd.isna(filled[f"{FMA}.sum"][2])
    assert filled["lts__t_bytes.sum"].tolist() == [9, 9, 9]
    # Nothing was counted in the whole run.
    filled = known_operations.fill_operations(table[["mangled", *KEYS[1:], GPU_TIME]], found)
    assert filled[f"{FMA}.sum"].tolist()[:2] == [100, 300] and filled[f"{ADD}.sum"].tolist()[:2] == [7, 7]


def write(folder: Path, table: pd.DataFrame, **facts: Any) -> None:
    folder.mkdir(exist_ok=True)
    write_csv(table, folder / "train.ncu.survey.csv")
    said = {**LIKE, "units": {f"{FMA}.sum": "inst"}, **facts}
    (folder / "train.ncu.survey.csv.json").write_text(json.dumps(said))


def test_only_tables_of_the_same_gpu_and_software_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a", launches("ab", 1e4))
    for name, facts in {"b": {"gpu": "H200"}, "c": {"torch": "2.12"}, "d": {"cuda": None}, "e": {"ranks": [1]}}.items():
        write(tmp_path / name, launches("ab", 1e4), **facts)
    write(tmp_path / "f", launches("ab", 1e4).drop(columns=[*ASKED, f"{FMA}.max"]))
    write(tmp_path / "g", launches("ab", 1e4))
    (tmp_path / "g" / "train.ncu.survey.csv").write_text(f"id,{FMA}.sum\n1")
    write(tmp_path / "h", launches("ab", 1e4))
    (tmp_path / "h" / "train.ncu.survey.csv.json").unlink()
    ((name, table, units),) = known_operations.read_counted(tmp_path, LIKE)
    assert name == "a/train.ncu.survey.csv" and len(table) == 2 and units == {f"{FMA}.sum": "inst"}


def test_values_that_were_taken_are_not_passed_on(tmp_path: Path) -> None:
    """A value taken twice would hide where it was counted."""
    taken = known(launches("a", 1e4), launches("a", 1e4))
    write(tmp_path / "a", launches("ab", 1e4), plan={"known": taken})
    ((_, table, _),) = known_operations.read_counted(tmp_path, LIKE)
    assert table["mangled"].tolist() == ["b"]


@pytest.mark.parametrize("metric", ["lts__t_bytes.sum", "gpu__time_duration.sum", "launch__grid_size", "id"])
def test_other_columns_are_no_operations(metric: str) -> None:
    assert not known_operations.is_operation(metric) and known_operations.is_operation(f"{FMA}.avg")
