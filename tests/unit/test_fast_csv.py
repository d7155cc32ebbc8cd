"""Large tables by pandas' own parser: the same frames and the same errors as by the strict reader, whatever cells hold."""

import csv
import io
import itertools
import random
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io import column_types, fast_csv
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tables import kernel_table, schemas
from profzoo.tools.ncu import export as ncu_export
from profzoo.tools.ncu import export_schema
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.torch import owners
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import trace as torch_trace
from profzoo.trials import trial_table as trials
from tests.faults.mutations import BYTES, NAMES, NO_NUMBERS, TABLES

KINDS = {
    "name": column_types.TEXT, "whole": column_types.WHOLE, "count": column_types.COUNT, "number": column_types.NUMBER, "ns": column_types.AMOUNT,
    "flag": column_types.FLAG, "maybe": column_types.or_missing(column_types.NUMBER), "times": column_types.or_missing(column_types.COUNT), "metric": column_types.MEASURED,
    "range": column_types.TEXT,
}  # fmt: skip
TABLE = reading.Table(columns=KINDS)
# Cells that a kind holds, and each of which turns another parser's head.
ODD: Mapping[str, tuple[str, ...]] = {
    "name": NAMES,
    "range": ("forward", "", '"', "x,y", "1", "1e5"),
    "whole": ("0", "-0", "-5", "5.0", "-5.00", "007", str(2**61), str(2**53 + 1)),
    "count": ("0", "1", "5.0", "12.000", "007", str(2**61)),
    "number": ("0", "-0", "-0.0", "1e5", "1E-5", "2.5e+3", "inf", "-inf", "0.1", "1" + "0" * 30, "5e-324", "1e400"),
    "ns": (
        "0",
        "0.30000000000000004",
        "1e5",
        "2.4703282292062328e-324",
        "9007199254740993.0",
        "inf",
        "18446744073709551615",
    ),
    "flag": ("True", "False"),
    "maybe": ("", "-1", "0.5", "", "-1e-300"),
    "times": ("", "3", "3.0", "007", ""),
    "metric": ("", "1", "2.5", "n/a", "1,234", "nan", "inf"),
}
# What no kind of number holds, and pandas takes for one all the same, and the like.
WRONG = (" 5", "5 ", "+5", ".5", "5.", "-.5", "1.e5", "1.E5", "Infinity", "+inf", "INF", "-Infinity", "-", "-i", "5.5", "-1", "1e5",
         "nan", "NaN", "", str(2**62), str(2**63), str(2**64), "5e", "1e+", "- 5", "\t5", "5\x0b", "\u0665", "True", "5.0000000000000000001",
         *NO_NUMBERS)  # fmt: skip


def outcome(read: object, monkeypatch: pytest.MonkeyPatch, path: Path, table: reading.Table, least: int) -> object:
    """What a reader makes of a file: the frame, or its error in words; least: from how many characters on by pandas."""
    monkeypatch.setattr(fast_csv, "MIN_CHARACTERS", least)
    try:
        return read(path, table) if read is reading.read else pd.concat(list(reading.parts(path, table, 3)))
    except DataError as error:
        return str(error)


def alike(path: Path, table: reading.Table, monkeypatch: pytest.MonkeyPatch, read: object = reading.read) -> object:
    """Demand the same of both parsers, bit by bit; returns that."""
    fast, strict = (outcome(read, monkeypatch, path, table, least) for least in (0, 2**60))
    if isinstance(strict, str) or isinstance(fast, str):
        assert fast == strict
        return strict
    assert isinstance(fast, pd.DataFrame) and isinstance(strict, pd.DataFrame)
    pd.testing.assert_frame_equal(fast, strict, check_exact=True, check_index_type="exact", check_column_type="exact")
    for name in strict:
        if strict[name].dtype.kind in "if":
            assert fast[name].to_numpy().tobytes() == strict[name].to_numpy().tobytes(), name
    return strict


def text_of(rows: list[list[str]], **how: object) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, **{"lineterminator": "\n", **how}).writerows([[*KINDS], *rows])  # type: ignore[arg-type]
    return text.getvalue()


def test_tables_of_odd_cells_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, fast = tmp_path / "t.csv", 0
    # Without what the strict reader alone reads.
    strict = ("inf", "\r", ".00")
    plain = {name: [one for one in cells if not any(odd in one for odd in strict)] for name, cells in ODD.items()}
    for seed, chosen in itertools.product(range(40), (ODD, plain)):
        draw = random.Random(seed)
        rows = [[draw.choice(chosen[name]) for name in KINDS] for _ in range(draw.randrange(30))]
        path.write_text(text_of(rows, quoting=draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])), newline="")
        assert isinstance(alike(path, TABLE, monkeypatch), pd.DataFrame)
        alike(path, TABLE, monkeypatch, reading.parts)
        fast += fast_csv.parse(path.read_text(), KINDS) is not None
    # The strict reader has not read both sides of all of them.
    assert fast > 10


@pytest.mark.parametrize("name", KINDS)
def test_cells_of_another_kind_are_named_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path, place = tmp_path / "t.csv", list(KINDS).index(name)
    usual = {"name": "k", "range": "r", "flag": "True"}
    for wrong in dict.fromkeys([*WRONG, *ODD["number"], *ODD["times"]]):
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
            rows = [[usual.get(one, "1") for one in KINDS] for _ in range(4)]
            rows[2][place] = wrong
            path.write_text(text_of(rows, quoting=quoting), newline="")
            alike(path, TABLE, monkeypatch)


def test_random_numbers_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, path = random.Random(11), tmp_path / "t.csv"
    for kind in (
        column_types.WHOLE,
        column_types.COUNT,
        column_types.NUMBER,
        column_types.or_missing(column_types.AMOUNT),
    ):
        table = reading.Table(columns={"x": kind, "y": column_types.TEXT})
        for _ in range(150):
            cell = "".join(draw.choice("00112345.-+eEin f_") for _ in range(draw.randrange(1, 7)))
            path.write_text(f"x,y\n1,a\n{cell},b\n")
            alike(path, table, monkeypatch)


@pytest.mark.parametrize(
    "content",
    [
        "", "\n", "x\n", "x,y", "x,y\n", "x,y\n\n", "\nx,y\n1,2\n", "x,y\n1,2\n\n3,4\n", "x,y\n1,2", "x,y\n1,2\n3\n", "x,y\n1,2,3\n",
        "x,y\n1,2,3\n4\n", "x,y\n1,2\n3,4,5\n6\n", "x,y\n1\n2,3,4\n", "x,y\r\n1,2\r\n", "x,y\n1,2\r\n", "x,y\n1,a\rb\n", "x,y\n1,a\0b\n",
        "x,x\n1,2\n", "y\na\n", "x,y,z\n1,2,3\n", ",y\n1,2\n", 'x,"y"\n1,a\n', 'x,y\n1,"a\n', 'x,y\n1,"a"b\n', 'x,y\n1,a"b"\n', 'x,y\n1,"a""b"\n',
        'x,y\n"1",a\n', 'x,y\n1,a"\n2,"b\n', 'x,y\n1,"a\nb"\n', 'x,y\n1,"a\n\nb"\n', 'x,"y\n1",a\n', "x,y\n1,a \n", "x, y\n1,a\n",
        "\ufeffx,y\n1,a\n", "\ufeff\ufeffx,y\n1,a\n", 'x,y\n1,"a" \n', "x,y\n1,a,\n", "x,y\n1,'a,b'\n", "x,y\n1,a\\,b\n", 'x,y\n1,""\n', "x,y\n1,\n",
        'x,y\n1,"a","b"\n2\n', 'x,y\n1,""""\n', 'x,y\n1,"""a"\n', 'x,y\n1,"a"""\n', 'x,y\n1,"",\n',
    ],
)  # fmt: skip
def test_odd_files_are_read_or_refused_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode())
    alike(path, reading.Table(columns={"x": column_types.COUNT, "y": column_types.TEXT}), monkeypatch)
    alike(
        path,
        reading.Table(
            columns={"x": column_types.TEXT}, others=lambda name: column_types.or_missing(column_types.NUMBER)
        ),
        monkeypatch,
    )
    path.write_bytes(content.encode() + b"1,\xff\n")
    alike(path, reading.Table(columns={"x": column_types.COUNT, "y": column_types.TEXT}), monkeypatch)


def recorded(recording, folder: Path) -> dict[str, tuple[Path, reading.Table]]:
    """Every recorded table, and what this workflow makes of recordings."""
    known = schemas.TABLES["kernels"]
    # The recording has fewer columns than the table.
    fewer = reading.Table(columns={}, others=known.kind)
    found = {"zoo kernels": (recording("zoo/kernels.csv"), fewer)}
    data = Path(__file__).parents[1] / "data"
    found["zoo steps"] = (data / "zoo/steps.csv", schemas.TABLES["steps"])
    found |= {path.name: (path, trials.TRIALS_TABLE) for path in sorted(data.glob("trials/*.csv"))}
    found["operators"] = (recording("torch/train.torch-operators.csv"), torch_tables.OPERATORS)
    pages = [str(recording(f"ncu/launch.raw.{kind}.csv")) for kind in ("mangled", "demangled")]
    census = ncu_export.tabulate_report({1: pages}, {"command": []}, None, "all").table
    trace, traced = torch_trace.read_trace(recording("torch/bert.train.trace.json")), recording("nsys/train.sqlite")
    launches = nsys_tables.summarise(traced)
    joined = kernel_table.join(launches, 1, [census], dict.fromkeys({*launches["kernel"], *census["kernel"]}, "gemm"))
    made = {
        "census": (census, export_schema.TABLE),
        "nsys": (launches, nsys_tables.TABLE),
        "steps": (nsys_steps.where_time_goes(traced), nsys_steps.TABLE),
        "launches": (owners.tabulate_launches(trace), owners.TABLE),
        "kernels": (joined, kernel_table.TABLE),
    }
    for name, (table, declared) in made.items():
        write_csv(table, folder / f"{name}.csv")
        found[name] = folder / f"{name}.csv", declared
    return found


def test_recorded_tables_are_read_alike_and_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording) -> None:
    fast = []
    for name, (path, table) in recorded(recording, tmp_path).items():
        assert isinstance(alike(path, table, monkeypatch), pd.DataFrame), name
        content = path.read_text()
        known = {one: kind for one in fast_csv.parse_header(content) if (kind := table.kind(one)) is not None}
        fast += [name] if fast_csv.parse(content, known) is not None else []
    # None that is large needs the strict reader.
    assert {"zoo kernels", "census", "nsys", "launches", "kernels", "operators"} <= set(fast)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_tables_are_read_or_refused_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording, seed: int
) -> None:
    draw, path = random.Random(seed), tmp_path / "t.csv"
    whole = recording("zoo/kernels.csv").read_bytes().splitlines(keepends=True)
    content, _ = draw.choice([*BYTES, *TABLES])(b"".join(whole[: draw.randrange(2, 40)]), draw)
    path.write_bytes(content)
    alike(path, reading.Table(columns={}, others=schemas.TABLES["kernels"].kind), monkeypatch)
