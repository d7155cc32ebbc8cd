"""Padding and compilations are noted in programs that have them, and judged by what they cost."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from profzoo.harness import batch_padding, compilations
from profzoo.verdicts import noted_verdicts, tuning_verdicts, verdicts
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.cell_facts import read_cell_facts
from profzoo.verdicts.noted_facts import NotedFacts, add_activities
from profzoo.what_if import storage
from tests.unit.test_fusion_costs import attention_cell
from tests.unit.test_verdicts import UNTRIED, kernel_rows
from tests.unit.test_verdicts import made as a_step

__all__ = ["attention_cell"]
RULES = verdict_rules.load_rules()["rules"]
LONG, SHORT, ROWS = 64, 16, 8


def texts(places: int, value: int = 0) -> torch.Tensor:
    """Rows of up to SHORT words, padded to so many places; the first has SHORT words."""
    made = torch.full((ROWS, places), value)
    for row, length in enumerate([SHORT, *range(SHORT // 2, SHORT // 2 + ROWS - 1)]):
        made[row, :length] = torch.arange(1, length + 1) + value
    return made


def noted(*batches: Any) -> list[Any]:
    found = batch_padding.BatchPadding()
    for batch in batches:
        found.note(batch)
    return found.read()


def test_padding_is_what_rows_end_in() -> None:
    (one,) = noted((texts(LONG), torch.zeros(ROWS)))
    lengths = [SHORT, *range(SHORT // 2, SHORT // 2 + ROWS - 1)]
    assert one == {"rows": ROWS, "places": LONG, "value": 0, "padded": ROWS * LONG - sum(lengths), "longest": SHORT}
    # Targets that are ignored, and a mask, are padded alike.
    ignored, mask = noted({"labels": texts(LONG, -100), "mask": texts(LONG) > 0})
    assert ignored["value"] == -100 and mask["value"] == 0 and ignored["padded"] == mask["padded"] == one["padded"]


@pytest.mark.parametrize(
    "batch",
    [
        torch.randint(0, 1000, (ROWS, LONG)),
        torch.randn(ROWS, LONG),
        torch.zeros(ROWS, 4, dtype=torch.int64),
        torch.randint(0, 10, (ROWS,)),
        "text",
        None,
    ],
)
def test_a_batch_without_padding_has_none(batch: Any) -> None:
    torch.manual_seed(0)
    assert sum(one["padded"] for one in noted(batch)) <= 2


def test_only_the_first_batches_are_looked_at() -> None:
    assert len(noted(*[texts(LONG)] * 5)) == batch_padding.BATCHES


def facts(places: int) -> NotedFacts:
    return NotedFacts(noted(texts(places)))


def test_padding_is_described_by_the_longest_row() -> None:
    found = facts(LONG).most_padded()
    assert found and found.behind == 1 - SHORT / LONG and found.padded > found.behind
    trimmed = facts(SHORT).most_padded()
    assert trimmed and trimmed.behind == 0 < trimmed.padded


def test_on_a_cpu_the_parts_that_padding_reaches_shrink() -> None:
    times = {"forward": 40.0, "backward": 40.0, "optimizer": 20.0}
    (row,) = noted_verdicts.judge_noted(RULES, facts(LONG), {}, times)
    assert row.verdict == "padded batches" and row.next_step.startswith("8") and "8 x 64" in row.next_step
    # A quarter of the places is left, and with it a quarter of 80 % of the step.
    assert row.gain == pytest.approx(1 / (0.2 + 0.8 / 4))
    assert row.gain_low == 1 and row.gain_high and row.gain_high > row.gain
    assert noted_verdicts.judge_noted(RULES, NotedFacts(), {}, times) == []
    assert noted_verdicts.judge_noted(RULES, facts(LONG), {}, {"forward": 1.0, "optimizer": 99.0}) == []


def test_launches_keep_the_shortest_time_and_attention_shrinks_with_the_square() -> None:
    launches = pd.DataFrame({"class": ["gemm", "attention", "elementwise", "copy"], "mean_ns": [1e5, 1e5, 2.5e3, 2e3]})
    saved = noted_verdicts.saved_share(launches, 0.5, squared=True)
    assert saved.tolist()[:2] == [0.5, 0.75]
    # No launch is shorter than 2 µs.
    assert saved.tolist()[2:] == [pytest.approx(0.2), 0.0]
    assert noted_verdicts.saved_share(launches, 0.5, squared=False).tolist()[1] == 0.5


def grow(x: torch.Tensor, times: int) -> torch.Tensor:
    return torch.relu(x) * times


def cut(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    print("", end="")
    return y * 2


@pytest.fixture
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()


def compiled(function: Any, *calls: tuple[Any, ...]) -> NotedFacts:
    """What is noted of calls of a compiled function, of which the first is the warm-up."""
    made = torch.compile(function, backend="eager")
    made(*calls[0])
    began = time.perf_counter_ns()
    for one in calls[1:]:
        made(*one)
    window = time.perf_counter_ns() - began
    return NotedFacts((), compilations.read_compilations(began, window), window)


@pytest.mark.usefixtures("fresh")
def test_code_that_is_compiled_again_is_named_with_its_line_and_reason() -> None:
    x = torch.randn(4)
    found = compiled(grow, (x, 3), (x, 4), (x, 4))
    # A window of one compilation is hardly more than that.
    assert 0.5 < found.compiling_share() <= 1
    (row,) = noted_verdicts.judge_compilation(RULES, found, {})
    line = grow.__code__.co_firstlineno
    assert row.verdict == "recompilation" and row.gain and row.gain > 2
    assert f"test_noted_work.py:{line}) was compiled once" in row.next_step and "times == 3" in row.next_step
    again = compiled(grow, (x, 4), (x, 4), (x, 4))
    assert again.compiling_share() == 0 and list(noted_verdicts.judge_compilation(RULES, again, {})) == []


@pytest.mark.usefixtures("fresh")
def test_graph_breaks_are_named_by_their_lines_and_have_no_gain() -> None:
    x = torch.randn(4)
    (row,) = noted_verdicts.judge_compilation(RULES, compiled(cut, (x,), (x,)), {})
    line = cut.__code__.co_firstlineno + 2
    assert row.verdict == "graph breaks" and row.value == 1 and row.gain is None
    assert f"test_noted_work.py:{line}: " in row.next_step
    torch._dynamo.utils.clear_compilation_metrics()
    assert list(noted_verdicts.judge_compilation(RULES, compiled(grow, (x, 1), (x, 1)), {})) == []


def test_convolutions_of_new_shapes_that_take_the_host_long_are_tuned() -> None:
    usual = {
        "kind": "operator",
        "name": "aten::cudnn_convolution",
        "count": 16,
        "cpu_ns": 1.6e6,
        "shapes": "[[16, 64]]",
    }
    new = usual | {"count": 1, "cpu_ns": 3e7, "shapes": "[[16, 3, 84, 84], [64, 3, 7, 7], []]"}
    step = {"kind": "range", "name": "step", "count": 2, "cpu_ns": 7e7, "shapes": ""}
    found = tuning_verdicts.find_tuning(pd.DataFrame([usual, new, new | {"shapes": "[[16, 3, 80, 80]]"}, step]))
    assert found and found.ns == pytest.approx(3e7 - 1e5) and found.shapes == new["shapes"]
    for twin in ([usual, step], [usual, new | {"count": 2}, step], [usual, new | {"cpu_ns": 2e5}, step], [usual, new]):
        assert tuning_verdicts.find_tuning(pd.DataFrame(twin)) is None


def test_padded_batches_are_judged_in_a_step_on_a_gpu(attention_cell: Any) -> None:
    folder = attention_cell[2]
    (process,) = programs = storage.read(folder / "p.npz")
    step = a_step({}).assign(process=process)
    judged = verdicts.judge_cell(step, {}, verdict_rules.load_rules(), {}, programs, UNTRIED)
    assert judged.replayed
    program, operations = judged.replayed.program, judged.replayed.operations
    each = operations.keys.assign(total_ns=program.gpu["ns"] / program.steps, launches=1 / program.steps)
    rows = each[operations.kernels].groupby(list(operations.keys), as_index=False).sum()
    rows = kernel_rows(total_ns=rows["total_ns"]).assign(**rows, mean_ns=rows["total_ns"] / rows["launches"])
    found = noted_verdicts.judge_padding(judged, rows, facts(LONG))
    (row,) = found
    assert row.verdict == "padded batches" and row.method == "replay"
    # The step is the sum of its kernels, all of which go with the places, of which a quarter is left.
    assert row.gain == pytest.approx(4, rel=0.02) and row.gain_low and row.gain_high
    assert row.gain_low < row.gain < row.gain_high
    assert list(noted_verdicts.judge_padding(judged, rows, NotedFacts())) == []


def test_what_was_noted_is_read_from_the_sidecar_of_each_cell(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "train.time.csv.json"
    made = compilations_of_a_window()
    path.write_text(
        json.dumps({"cell": {}, "padding": noted(texts(LONG)), "compilations": made, "window_wall_ns": 4e9})
    )
    found = read_cell_facts([str(path)]).noted["m", "train"]
    padding = found.most_padded()
    assert padding and padding.places == LONG and found.compiling_share() == 0.25
    with_operators = add_activities({("m", "train"): found}, {("n", "train"): pd.DataFrame()})
    assert with_operators["m", "train"].activities is None and with_operators["n", "train"].padding == ()
    path.write_text(json.dumps({"cell": {}}))
    assert read_cell_facts([str(path)]).noted["m", "train"] == NotedFacts()


def compilations_of_a_window() -> list[Any]:
    """Two compilations of a second each, of which one is in the window."""
    one = {"function": "f", "file": "a.py", "line": 3, "resumed": False, "why_again": "", "seconds": 1.0}
    return [one | {"in_window": False}, one | {"in_window": True}]
