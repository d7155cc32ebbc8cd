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
