"""Planted cases of a size for a CPU: collected, packed, and derived in another folder, as after a GPU machine."""

import time
from pathlib import Path

import pandas as pd
import pytest

from tests.planted import cases, collect, derive, packing, scoring

NAME = "vit_heads"
MINUTES = 5


@pytest.mark.slow
def test_tables_are_derived_from_archives_in_another_folder(tmp_path: Path) -> None:
    chosen, first = collect.choose_cases(cases.DEVELOPMENT, NAME), tmp_path / "first"
    # Time that is up before anything is made leaves nothing behind that the next call trips over.
    assert collect.collect(chosen, first, time.monotonic(), 1, tiny=True) == {}
    assert collect.report(chosen, first, tiny=True) == []
    assert collect.collect(chosen, first, time.monotonic() + 60 * MINUTES, 1, tiny=True) == {}
    assert collect.report(chosen, first, tiny=True) == chosen
    began = time.monotonic()
    assert collect.collect(chosen, first, began + 60, 1, tiny=True) == {} and time.monotonic() - began < 5
    names = [name for case in chosen for name in (case.name, case.twin)]
    archives = packing.pack(first / "results", names, tmp_path / "packed", cases.DEVELOPMENT)
    second = tmp_path / "second"
    derive.unpack(archives, second)
    tables = derive.derive(chosen, second, tiny=True)
    assert set(pd.read_csv(tables / "cells.csv")["model"]) == set(names)
    scored = scoring.score_case(
        chosen[0], pd.read_csv(tables / "verdicts.csv"), scoring.read_mapping(), second / "results"
    )
    assert scored is not None and scored.verdict and scored.measured.gain > 0


@pytest.mark.parametrize(
    ("said", "place", "summary"),
    [
        (["looped heads", "memory-bound"], 1, ["first cause right: 1 of 1 (100%)", "first or second cause right: 1 of 1 (100%)"]),
        (["memory-bound", "launch-bound"], 2, ["first cause right: 0 of 1 (0%)", "first or second cause right: 1 of 1 (100%)"]),
        (["memory-bound", "casts", "launch-bound"], 3, ["first cause right: 0 of 1 (0%)", "first or second cause right: 0 of 1 (0%)"]),
        (["memory-bound"], 0, ["first cause right: 0 of 1 (0%)", "first or second cause right: 0 of 1 (0%)"]),
    ],
)  # fmt: skip
def test_a_case_is_scored_by_the_place_of_the_first_right_verdict(
    said: list[str], place: int, summary: list[str], tmp_path: Path
) -> None:
    (case,) = collect.choose_cases(cases.DEVELOPMENT, NAME)
    for name, ns in ((case.name, 4e6), (case.twin, 2e6)):
        (tmp_path / name).mkdir()
        pd.DataFrame({"gpu_ns": [ns] * 4, "wall_ns": ns}).to_csv(
            tmp_path / name / f"{case.phase}.time.csv", index=False
        )
    rows = [{"verdict": name, "rank": rank, "level": "cell", "gain": 1.5} for rank, name in enumerate(said, 1)]
    # Verdicts on layers do not count, nor does the order of rows.
    rows = [{"verdict": "looped heads", "rank": 1, "level": "layer", "gain": 9.0}, *rows[::-1]]
    table = pd.DataFrame(rows).assign(model=case.name, phase=case.phase, settings="", gain_low=1.0, gain_high=2.0)
    scored = scoring.score_case(case, table, scoring.read_mapping(), tmp_path)
    assert scored is not None and (scored.place, scored.verdict, scored.measured.gain) == (place, said[0], 2.0)
    assert scoring.summarise([scored])[:2] == summary
