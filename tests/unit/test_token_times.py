"""Times of tokens: noted by a clock of known times, written beside steps, and told as percentiles."""

import csv
import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from profzoo.experiments import interleaved_runs
from profzoo.harness.observers import recorders
from profzoo.harness.observers.recorders import TokenTimes
from profzoo.harness.tasks import tokens
from profzoo.io import csv_tables
from profzoo.report.cell_section import describe_latency
from profzoo.tables import across_cells, latency
from profzoo.tools.time.tables import REPEATED, TABLE, read_token_times
from tests import zoo
from tests.unit.test_recorders import CPU, Lagging


def timed(path: Path, steps: list[list[int]], rest: int = 7) -> pd.DataFrame:
    """The CSV of steps whose tokens keep the device busy for so long, and whose ends take `rest` more."""
    timer, clock = recorders.StepTimer(CPU, path), Lagging()
    timer.clock = clock
    timer.start()
    for times in steps:
        for ns in times:
            clock.give(1, ns)
            tokens.note_token()
        clock.give(1, rest)
        timer.step(1)
    timer.stop()
    return csv_tables.read(path, TABLE)


def test_tokens_take_as_long_as_the_device_needs(tmp_path: Path) -> None:
    table = timed(tmp_path / "s.csv", [[500, 20, 30], [400, 10], [600, 40, 50]])
    # Of the host, which is ahead, nothing shows but the ns in which it gave the device its first work. What comes behind
    # the last token of a step is part of no token.
    assert np.nan_to_num(read_token_times(table)).tolist() == [[501, 20, 30], [400, 10, 0], [600, 40, 50]]
    assert tokens._listeners == []


def test_steps_without_tokens_have_no_columns(tmp_path: Path) -> None:
    table = timed(tmp_path / "s.csv", [[], []])
    assert tuple(table.columns) == recorders.STEP_COLUMNS and read_token_times(table).shape == (2, 0)


def test_compiled_code_notes_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    times = TokenTimes(Lagging())
    times.start()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    tokens.note_token()
    times.end_step()
    times.stop()
    assert times.read_times([0]) == ([], [[]])


@pytest.mark.parametrize("model", ["gpt", "gnmt"])
def test_models_note_each_token_that_they_generate(model: str) -> None:
    tiny = zoo.cell(model, "inference")
    network, (inputs, _) = zoo.network(tiny), zoo.batch(tiny)
    noted: list[int] = []
    tokens.listen(listener := lambda: noted.append(1))
    try:
        with torch.inference_mode():
            made = importlib.import_module(f"models.{model}").infer(network, inputs)
    finally:
        tokens.ignore(listener)
    assert len(noted) == made.shape[1] > 1


def test_processes_with_and_without_tokens_are_joined(tmp_path: Path) -> None:
    """As of sides of which one runs a captured graph."""
    timed(tmp_path / "a.csv", [[500, 20], [500, 30]])
    timed(tmp_path / "b.csv", [[], []])
    given = [("", tmp_path / "b.csv"), ("graph", tmp_path / "a.csv"), ("", tmp_path / "b.csv")]
    assert interleaved_runs.join_steps(given, tmp_path / "all.csv") == 6
    table = csv_tables.read(tmp_path / "all.csv", REPEATED)
    assert table["side"].to_list() == ["", "", "graph", "graph", "", ""]
    assert table["process"].to_list() == [0, 0, 1, 1, 2, 2]
    assert table["token_1_ns"].dropna().to_list() == [20, 30]
    with (tmp_path / "all.csv").open() as file:
        assert {len(row) for row in csv.reader(file)} == {2 + 5 + 2}


def test_percentiles_of_first_and_further_tokens() -> None:
    dice = np.random.default_rng(4)
    first, further = 1e7 + 1e4 * dice.random((3, 200)), 1e6 + 1e3 * dice.random((3, 200, 4))
    rows = [
        pd.DataFrame({"process": process, "step": range(200), "gpu_ns": np.nan, "items": 1})
        .assign(wall_ns=first[process] + further[process].sum(axis=1), token_0_ns=first[process])
        .assign(**{f"token_{place + 1}_ns": further[process][:, place] for place in range(4)})
        for process in range(3)
    ]
    table = across_cells.make_latency([({"model": "gpt", "phase": "inference"}, pd.concat(rows), {})])
    assert latency.find_contradiction(table) is None
    median = table[table["percentile"] == 50].set_index("of")
    assert median.index.to_list() == ["step", "first token", "token"]
    assert median.loc["first token", "ns"] == pytest.approx(1e7 + 5e3, rel=1e-3)
    assert median.loc["token", "ns"] == pytest.approx(1e6 + 500, rel=1e-3)
    # The first step of each process is left out.
    assert median["steps"].to_list() == [median.loc["step", "steps"]] * 2 + [4 * median.loc["step", "steps"]]
    said = describe_latency(table)
    for of in ("", "first "):
        assert f"{of}tokens of 3 processes, in the median process half take at most" in said
    assert "half take at most 1 ms (" in said and ", with 75 %)" in said
