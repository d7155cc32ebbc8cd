"""Planted cases of a size for a CPU: collected, packed, and derived in another folder, as after a GPU machine."""

import tarfile
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.planted import cases, collect, derive, first_look, packing, scoring

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


@pytest.mark.slow
def test_the_first_look_collects_scores_and_packs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["pinn_double_points", "generation_grown_cache"]
    folders = ["--results", str(tmp_path / "sealed"), "--into", str(tmp_path / "packed")]
    first_look.main([*folders, "--tiny", "--cases", ",".join(chosen), "--side-by-side", "1", "--minutes", str(MINUTES)])
    said = capsys.readouterr().out
    assert "2 of 2 cases are complete" in said and "among the first two:" in said
    small = tmp_path / "packed/sealed.tar.xz"
    assert small.stat().st_size < 1 << 20 and (tmp_path / "packed/sealed-1.tar.xz").is_file()
    derive.unpack([small], tmp_path / "elsewhere")
    scores = pd.read_csv(tmp_path / "elsewhere/scores.csv")
    assert set(scores["case"]) == set(chosen) and (scores["measured"] > 0).all()
    with tarfile.open(small) as packed:
        assert sum(name.endswith(".time.csv") for name in packed.getnames()) == 4


@pytest.mark.parametrize(
    ("said", "right", "among_two"),
    [
        (["looped heads", "memory-bound"], True, True),
        (["memory-bound", "launch-bound"], False, True),
        (["memory-bound", "casts", "launch-bound"], False, False),
        (["memory-bound"], False, False),
    ],
)
def test_a_case_is_right_by_the_first_and_the_first_two_verdicts(
    said: list[str], right: bool, among_two: bool, tmp_path: Path
) -> None:
    (case,) = collect.choose_cases(cases.DEVELOPMENT, NAME)
    for name, ns in ((case.name, 4e6), (case.twin, 2e6)):
        (tmp_path / name).mkdir()
        steps = pd.DataFrame({"gpu_ns": [ns] * 4, "wall_ns": ns})
        steps.to_csv(tmp_path / name / f"{case.phase}.time.csv", index=False)
    rows = [{"verdict": name, "rank": rank, "level": "cell", "gain": 1.5} for rank, name in enumerate(said, 1)]
    # Verdicts on layers do not count, nor does the order of rows.
    rows = [{"verdict": "looped heads", "rank": 1, "level": "layer", "gain": 9.0}, *rows[::-1]]
    table = pd.DataFrame(rows).assign(model=case.name, phase=case.phase, settings="", gain_low=1.0, gain_high=2.0)
    scored = scoring.score_case(case, table, scoring.read_mapping(), tmp_path)
    assert scored is not None and (scored.right, scored.among_two) == (right, among_two)
    assert (scored.verdict, scored.measured.gain) == (said[0], 2.0)
    first, two = f"first cause right: {int(right)} of 1", f"among the first two: {int(among_two)} of 1"
    assert all(line.startswith(start) for line, start in zip(scoring.summarise([scored]), (first, two), strict=False))
