"""The tracks of streams in a typical step, of a program with known times and of a recording of an H200."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from profzoo.tables import stream_tracks
from profzoo.tools.nsys.median_step import read_typical_step
from profzoo.tools.nsys.trace import open_export
from tests.traced_programs import PROCESS
from tests.unit.test_streams import MS, US, known_program


@dataclass(frozen=True)
class Step:
    process: int
    begin: int
    end: int


def supplied(export: Path, step: Step) -> pd.DataFrame | str:
    with open_export(export) as (database, tables):
        return stream_tracks.supply_stream_tracks(database, tables, step)


def test_the_streams_of_a_known_step(tmp_path: Path, recording: Callable[[str], Path]) -> None:
    export = known_program().write(tmp_path / "t.sqlite", recording("nsys/train.sqlite"))
    # From within the first kernel of the second step.
    found = supplied(export, Step(PROCESS, 14 * MS, 20 * MS))
    assert isinstance(found, pd.DataFrame) and list(found) == stream_tracks.COLUMNS
    assert found["value"].isna().all() and found["unit"].eq("").all()
    assert found[["track", "label", "start_ns", "end_ns"]].to_numpy().tolist() == [
        ["stream 7", "gemm", 0, 1 * MS],
        ["stream 7", "gemm", 2 * MS, 4 * MS],
        ["stream 7", "copy device to host", 4 * MS, 4500 * US],
        ["stream 20", "copy host to device", 0, 3 * MS],
        ["stream 21", "memset", 5 * MS, 5250 * US],
    ]
    assert supplied(export, Step(PROCESS + (1 << 24), 0, 20 * MS)) == stream_tracks.NO_WORK
    assert supplied(export, Step(PROCESS, 9600 * US, 9700 * US)) == stream_tracks.NO_WORK


@pytest.mark.parametrize("most", [10_000, 100])
def test_a_step_of_a_recording_keeps_its_busy_time(
    monkeypatch: pytest.MonkeyPatch, recording: Callable[[str], Path], most: int
) -> None:
    export = recording("nsys/train.sqlite")
    monkeypatch.setattr(stream_tracks, "MOST", most)
    with closing(sqlite3.connect(export)) as database:
        ((process, first, last),) = database.execute(
            "SELECT globalPid, min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        )
    step = read_typical_step(export)
    assert step is not None
    found = supplied(export, Step(process, first, last))
    assert isinstance(found, pd.DataFrame)
    assert set(found["track"]) == {"stream 7"} and {"convolution", "normalisation"} <= set(found["label"])
    busy = (found["end_ns"] - found["start_ns"]).sum()
    if most > 5150:
        assert len(found) == 5150 and busy == 45_778_504
    else:
        # Joined spans hold short gaps too.
        assert len(found) < 5150 and 45_778_504 < busy < 0.75 * (last - first)
        assert (found["start_ns"].to_numpy()[1:] >= found["end_ns"].to_numpy()[:-1]).all()
