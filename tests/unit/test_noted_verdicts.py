"""What measured processes note of padding, compilations and clocks, judged by what it costs."""

import json
import time
from collections import UserDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from profzoo.cell.job_types import ClockReading
from profzoo.harness.step import measure
from profzoo.harness.step.batches import BATCHES, BatchPadding
from profzoo.verdicts.causes import cause_verdicts, noted_verdicts
from profzoo.verdicts.gain_models import CellSimulation
from profzoo.verdicts.rules.cell_facts import NotedFacts, Padding, add_activities, read_cell_facts
from profzoo.verdicts.rules.rule_evaluation import CellRules
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.loading import Loading
from profzoo.what_if.predicted_gains import Gain
from tests import known_rules, simulated_waits
from tests.simulated_waits import operator
from tests.unit.test_verdicts import UNTRIED, kernel_rows
from tests.unit.test_verdicts import made as a_step

EVERY = known_rules.load(every=True)
RULES = EVERY["rules"]
LONG, SHORT, ROWS = 64, 16, 8


def texts(places: int, value: int = 0) -> torch.Tensor:
    """Rows of up to SHORT words, padded to so many places; the first has SHORT words."""
    made = torch.full((ROWS, places), value)
    for row, length in enumerate([SHORT, *range(SHORT // 2, SHORT // 2 + ROWS - 1)]):
        made[row, :length] = torch.arange(1, length + 1) + value
    return made


def noted(*batches: Any) -> list[Any]:
    found = BatchPadding()
    for batch in batches:
        found.note(batch)
    return found.read()


LENGTHS = [SHORT, *range(SHORT // 2, SHORT // 2 + ROWS - 1)]
PADDED = ROWS * LONG - sum(LENGTHS)


def test_padding_is_what_rows_end_in() -> None:
    (one,) = noted((texts(LONG), torch.zeros(ROWS)))
    assert one == {"rows": ROWS, "places": LONG, "value": 0, "padded": PADDED, "longest": SHORT, "mask": ""}
    # A row that is one place shorter than the longest one is padded with one place.
    (one,) = noted(texts(SHORT))
    assert one["padded"] == sum(SHORT - length for length in LENGTHS) and one["longest"] == SHORT
    # An empty row tells nothing, and the word 0 may be in a text now and then.
    words = texts(LONG)
    words[0, 3] = 0
    assert noted(torch.cat([words, torch.zeros(1, LONG, dtype=torch.int64)]))[0]["padded"] == PADDED


def like_hugging_face(kept: torch.Tensor, **others: torch.Tensor) -> dict[str, torch.Tensor]:
    """A batch as tokenizers make it; kept: which places hold words."""
    torch.manual_seed(0)
    words = torch.where(kept, torch.randint(4, 1000, kept.shape), 0)
    same = torch.zeros_like(words)
    return {"input_ids": words, "attention_mask": kept.long(), "token_type_ids": same, **others}


KEPT = torch.arange(LONG) < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.uint8, torch.float32])
@pytest.mark.parametrize("kept", [KEPT, KEPT.flip(1)], ids=["right", "left"])
def test_an_attention_mask_tells_padding_at_either_end(kept: torch.Tensor, kind: torch.dtype) -> None:
    batch = like_hugging_face(kept, labels=torch.where(kept, 5, -100))
    (one,) = noted({**batch, "attention_mask": kept.to(kind)})
    assert one == {
        "rows": ROWS, "places": LONG, "value": 0, "padded": PADDED, "longest": SHORT, "mask": "attention_mask"
    }  # fmt: skip
    # A mask with a gap leaves out what is behind the last word, and an empty row is padding altogether.
    gaps = kept.clone()
    gaps[:, LONG // 2] |= gaps[:, 0] | gaps[:, -1]
    gaps[-1] = False
    until = (LONG // 2 + 1) * (ROWS - 1)
    first = sum(max(length, LONG // 2) for length in LENGTHS[:-1])
    expected = ROWS * LONG - until if kept[0, 0] else ROWS * LONG - first
    assert noted({"attention_mask": gaps})[0]["padded"] == expected


def test_an_encoder_and_a_decoder_have_a_mask_each() -> None:
    other = torch.ones(ROWS, LONG + 8, dtype=torch.int64)
    batch = {**like_hugging_face(torch.ones_like(KEPT)), "decoder_attention_mask": KEPT, "decoder_input_ids": other}
    (one,) = noted(batch)
    assert (one["mask"], one["padded"]) == ("decoder_attention_mask", PADDED)


class Batch(UserDict):  # type: ignore[type-arg]
    """As BatchEncoding: a mapping that is not a dictionary."""


@pytest.mark.parametrize(
    "batch",
    [
        like_hugging_face(torch.ones_like(KEPT)),
        Batch(like_hugging_face(torch.ones_like(KEPT))),
        # The last words of texts of one length are the same mark; a mask tells that it is a word.
        {"input_ids": texts(LONG, 7), "attention_mask": torch.ones(ROWS, LONG, dtype=torch.int64)},
        # Tensors without names: types, pairs of texts, one-hot and multi-hot labels, masks of bytes and booleans.
        (torch.zeros(ROWS, LONG, dtype=torch.int64), torch.ones(ROWS, LONG, dtype=torch.int64)),
        (KEPT.long(), KEPT.to(torch.uint8), KEPT),
        torch.nn.functional.one_hot(torch.arange(ROWS), SHORT),
        # Counts per class, mostly none; labels of tags, and a target, by their names; an inverted and an odd mask.
        torch.poisson(torch.full((ROWS, LONG), 0.2), generator=torch.Generator().manual_seed(2)).long(),
        {"labels": texts(LONG, -100), "next_sentence_label": texts(LONG), "mlm_targets": texts(LONG)},
        {"attention_mask": torch.zeros(ROWS, LONG)},
        {"attention_mask": torch.where(KEPT, 0.0, -1e9), "words": texts(LONG)},
        (torch.randint(0, 1000, (ROWS, LONG), generator=torch.Generator().manual_seed(3)), torch.randn(ROWS, LONG)),
        (torch.zeros(ROWS, 4, dtype=torch.int64), torch.randint(0, 10, (ROWS,)), "text", None),
    ],
)
def test_a_batch_without_padding_has_none(batch: Any) -> None:
    assert noted(batch) == []


def test_only_the_first_batches_are_looked_at() -> None:
    assert len(noted(*[texts(LONG)] * 5)) == BATCHES


def facts(places: int) -> NotedFacts:
    return NotedFacts(noted(texts(places)))


def test_padding_is_described_by_the_longest_row() -> None:
    found = facts(LONG).most_padded()
    assert found and found.behind == 1 - SHORT / LONG and found.padded > found.behind
    trimmed = facts(SHORT).most_padded()
    assert trimmed and trimmed.behind == 0 < trimmed.padded


def test_nothing_but_padding_is_not_judged() -> None:
    """Sidecars of before hold such rows: a gain that leaves no time is none."""
    all_of_it = {"rows": 8, "places": LONG, "value": 1, "padded": 8 * LONG, "longest": 0}
    nearly = all_of_it | {"padded": 8 * LONG - 1, "longest": 0}
    assert NotedFacts([all_of_it, nearly]).most_padded() is None
    times = {"forward": 60.0, "backward": 40.0}
    assert noted_verdicts.judge_noted(RULES, NotedFacts([all_of_it, nearly]), {}, times) == []


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
    return NotedFacts((), measure.read_compilations(began, window), window)


@pytest.mark.usefixtures("fresh")
def test_code_that_is_compiled_again_is_named_with_its_line_and_reason() -> None:
    x = torch.randn(4)
    found = compiled(grow, (x, 3), (x, 4), (x, 4))
    # A window of one compilation is hardly more than that.
    assert 0.5 < found.compiling_share() <= 1
    (row,) = noted_verdicts.judge_window(RULES, found, {})
    line = grow.__code__.co_firstlineno
    assert row.verdict == "recompilation" and row.gain and row.gain > 2
    assert f"test_noted_verdicts.py:{line}) was compiled once" in row.next_step and "times == 3" in row.next_step
    again = compiled(grow, (x, 4), (x, 4), (x, 4))
    assert again.compiling_share() == 0 and list(noted_verdicts.judge_window(RULES, again, {})) == []


def test_workers_that_start_in_each_epoch_cost_their_share_of_the_window() -> None:
    """At most their first batches go, too. A loader that starts workers for a thousandth of the window is not named."""
    noted = {"worker_starts": 2, "workers": 4, "starting_s": 0.2, "first_batches_s": 0.3}
    found = NotedFacts(window_ns=1e9, starts=noted, made=[{"kind": "loader", "name": "", "file": "a.py", "line": 3}])
    (row,) = noted_verdicts.judge_window(RULES, found, {})
    assert row.verdict == "restarted workers" and (row.value, row.share, row.gain) == (0.2, 0.5, 2.0)
    assert row.next_step.startswith("the loader made at a.py:3 started 4 workers 2 times within the window, which took")
    assert "persistent_workers=True" in row.next_step
    rare = NotedFacts(window_ns=2e11, starts=noted)
    assert list(noted_verdicts.judge_window(RULES, rare, {})) == []


@pytest.mark.usefixtures("fresh")
def test_graph_breaks_are_named_by_their_lines_and_have_no_gain() -> None:
    x = torch.randn(4)
    (row,) = noted_verdicts.judge_window(RULES, compiled(cut, (x,), (x,)), {})
    line = cut.__code__.co_firstlineno + 2
    assert row.verdict == "graph breaks" and row.value == 1 and row.gain is None
    assert f"test_noted_verdicts.py:{line}: " in row.next_step
    torch._dynamo.utils.clear_compilation_metrics()
    assert list(noted_verdicts.judge_window(RULES, compiled(grow, (x, 1), (x, 1)), {})) == []


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
    found = cause_verdicts.find_tuning(pd.DataFrame([usual, new, new | {"shapes": "[[16, 3, 80, 80]]"}, step]))
    assert found and found.ns == pytest.approx(3e7 - 1e5) and found.shapes == new["shapes"]
    for twin in ([usual, step], [usual, new | {"count": 2}, step], [usual, new | {"cpu_ns": 2e5}, step], [usual, new]):
        assert cause_verdicts.find_tuning(pd.DataFrame(twin)) is None


def test_the_hosts_time_for_new_shapes_counts_where_the_trace_shows_less(tmp_path: Path) -> None:
    """A step of 20 launches without any search, 2 ms long and idle for half: torch.profiler shows 1 ms of tuning."""
    usual = {"kind": "operator", "name": "aten::cudnn_convolution", "count": 40, "cpu_ns": 4e5, "shapes": "[[16, 64]]"}
    new = usual | {"count": 2, "cpu_ns": 4e6, "shapes": "[[16, 3, 84, 84]]"}
    rows = pd.DataFrame([usual, new, {"kind": "range", "name": "step", "count": 4, "cpu_ns": 8e6, "shapes": ""}])
    program, _ = simulated_waits.traced([simulated_waits.operator(5e4)] * 20, tmp_path)
    step = a_step({"idle_host": 0.5}).assign(step_ns=2e6, step_median_ns=2e6, idle_ns=1e6).iloc[0]
    judged = CellRules(step, {}, EVERY, {}, CellSimulation(program))
    (row,) = cause_verdicts.judge_tuning(judged, rows)
    share = (4e6 - 2 * 1e4) / 4 / 2e6
    assert row.method == "Amdahl" and row.share == pytest.approx(share) and row.gain == pytest.approx(1 / (1 - share))
    assert row.next_step.startswith("aten::cudnn_convolution of [16, 3, 84, 84], a shape that not every step has: ")
    assert list(cause_verdicts.judge_tuning(judged, None)) == []


@pytest.mark.parametrize(
    ("behind", "part"),
    # Where the longest row leaves a tenth, batches can be cut there; else padding has to go by other means.
    [(0.25, 0.25), (0.1, 0.1), (0.099, 0.5)],
)
def test_the_gain_without_padding_is_simulated_with_both_its_ends(behind: float, part: float) -> None:
    """Attention's time goes with the square of the places; a launch of the backward pass that took no time is none."""
    asked: list[Any] = []

    class Replayed:
        def gain(self, one: Any, step: Any, error: float) -> Any:
            asked.append((one.change, one.saved.round(6).tolist(), error))
            return Gain(1, 1, *[(2.0, 1.75, 2.25), (1.5, 1.25, 1.75), (3.0, 2.5, 3.5)][(len(asked) - 1) % 3])

    judged = CellRules(a_step({}).iloc[0], {}, EVERY, {}, None, UNTRIED)
    judged.replayed = Replayed()  # type: ignore[assignment]
    ways, kinds = ["forward", "backward", "optimizer", "backward"], ["attention", "gemm", "gemm", "gemm"]
    rows = kernel_rows(total_ns=[60.0, 40.0, 50.0, 0.0], mean_ns=[1e6] * 4, range=ways, **{"class": kinds})
    found = NotedFacts(padding=[])
    object.__setattr__(found, "most_padded", lambda: Padding(8, 64, 0, 0.5, behind))
    (row,) = noted_verdicts.judge_padding(judged, rows, found)
    assert list(noted_verdicts.judge_padding(judged, rows, NotedFacts())) == []
    squares = [[1 - (1 - one) ** 2, one] for one in (part, 0.5)]
    assert asked[:3] == [("faster", pytest.approx(saved), 0.0) for saved in (squares[0], [part, part], squares[1])]
    # Half of the step goes by the first; the ends are those of all three.
    assert (row.level, row.share, row.gain, row.gain_low, row.gain_high) == ("cell", 0.5, 2.0, 1.25, 3.5)
    assert (row.verdict, row.method, row.metric) == ("padded batches", "replay", "share of the step: padding")
    assert row.next_step.startswith("50 % of a batch of 8 x 64 is padding")


def test_what_was_noted_is_read_from_the_sidecar_of_each_cell(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "train.time.csv.json"
    one = {"function": "f", "file": "a.py", "line": 3, "resumed": False, "why_again": "", "seconds": 1.0}
    made = [one | {"in_window": False}, one | {"in_window": True}]
    facts = {"cell": {}, "padding": noted(texts(LONG)), "compilations": made, "window_wall_ns": 4e9,
             "repeated_calls": [{"module": "m"}]}  # fmt: skip
    path.write_text(json.dumps(facts))
    found = read_cell_facts([str(path)]).noted["m", "train"]
    padding = found.most_padded()
    assert padding and padding.places == LONG and found.compiling_share() == 0.25
    assert found.repeated == [{"module": "m"}]
    with_operators = add_activities({("m", "train"): found}, {("n", "train"): pd.DataFrame()})
    assert with_operators["m", "train"].activities is None and with_operators["n", "train"].padding == ()
    own = {"loading_cores": 0.5, "step_cores": 1.5, "batch_bytes": 100}
    path.write_text(json.dumps({"cell": {"workers": 3}, "cores": 8.0, "loading": own}))
    found = read_cell_facts([str(path)])
    assert found.noted["m", "train"].loading == Loading(cores=8.0, **own) and found.ran_with["m", "train"] == {
        "workers": 3
    }
    # A script's loader has workers that no setting tells of.
    path.write_text(json.dumps({"cell": {"workers": 0}, "loading": {**own, "workers": 2, "pin_memory": True}}))
    assert read_cell_facts([str(path)]).ran_with["m", "train"] == {"workers": 2, "pin_memory": True}
    # That a script's batch is 1 in its settings says nothing.
    for batch, known in ((8, {"batch": 8}), (None, {})):
        path.write_text(json.dumps({"cell": {"batch": 1}, "batch": batch, "script": {}}))
        assert read_cell_facts([str(path)]).ran_with["m", "train"] == known
    path.write_text(json.dumps({"cell": {}}))
    assert read_cell_facts([str(path)]).noted["m", "train"] == NotedFacts()


KEPT_HZ, DROPPED_HZ = 1.98e9, 1.485e9
# NVML's bits for an idle GPU, for clocks that a user has set, and for the power cap.
IDLE, SET, POWER = 1, 2, 4
SAMPLED = {"sm_clock_hz": DROPPED_HZ, "sm_clock_high_hz": KEPT_HZ, "throttled_share": 0.9, "clocks": "power cap in 90% of samples"}  # fmt: skip
UNKNOWN = dict.fromkeys(SAMPLED, np.nan)


def of_clocks(step: pd.DataFrame, readings: Sequence[tuple[float, int]] = (), **clocks: Any) -> list[Verdict]:
    """Verdicts on a step of one cell with what samples say of its clocks, and readings of clock and reasons."""
    rows = noted_verdicts.add_cells(step, pd.DataFrame([{"model": "m", "phase": "train", **clocks}]))
    read: list[ClockReading] = [{"sm_clock_hz": round(clock), "throttle_reasons": why} for clock, why in readings]
    return list(noted_verdicts.judge_clocks(CellRules(rows.iloc[0], {}, EVERY, {}, None, UNTRIED), read))


def test_kernels_that_the_clock_limits_gain_what_it_lost(tmp_path: Path) -> None:
    """On a simulated step, whose twin keeps the clock."""
    slow, quick = ([operator(2.4e4 * part) for _ in range(40)] for part in (1, DROPPED_HZ / KEPT_HZ))
    told = simulated_waits.told(slow, tmp_path)
    (found,) = of_clocks(told.row.to_frame().T.infer_objects(), **SAMPLED)
    measured = simulated_waits.step_ns(slow) / simulated_waits.step_ns(quick)
    assert found.verdict == "dropped clocks" and found.gain == pytest.approx(measured, rel=0.05)
    assert found.gain_low == 1 and found.gain_high is not None and found.gain_high >= measured * 0.95
    assert found.next_step.startswith(
        "the SM clock was 1,485 MHz in the mean and 1,980 MHz at best (power cap in 90% of samples): the GPU cannot hold"
    )
    assert "do not compare these times" in found.next_step and found.settings is None


def test_readings_of_unprofiled_processes_count_where_no_clock_was_sampled() -> None:
    """A reading of four at the full clock is taken for a quarter of the time."""
    dropped = [(KEPT_HZ, 0), *[(DROPPED_HZ, POWER)] * 3]
    (found,) = of_clocks(a_step({}), dropped, **UNKNOWN)
    assert found.gain == pytest.approx(1 / (0.25 + 0.75 * 0.75)) and found.gain_low == 1
    said = "the SM clock was 1,609 MHz in the mean and 1,980 MHz at best (power cap in 3 of 4 "
    assert found.next_step.startswith(said) and found.evidence == "sidecar of the unprofiled run: clocks"
    assert not of_clocks(a_step({}), dropped, **SAMPLED | {"sm_clock_hz": KEPT_HZ})


@pytest.mark.parametrize(
    "readings",
    [
        [],
        [(KEPT_HZ, 0), (KEPT_HZ, 0)],
        [(DROPPED_HZ, POWER), (DROPPED_HZ, POWER)],
        [(3.45e8, IDLE), (KEPT_HZ, 0)],
        [(DROPPED_HZ, 0), (KEPT_HZ, POWER)],
        [(DROPPED_HZ, SET), (DROPPED_HZ, SET)],
        [(3.45e8, IDLE), (3.45e8, IDLE)],
    ],
    ids=["none", "steady", "slow all the time", "idle before", "still rising", "set by a user", "never at work"],
)
def test_readings_without_a_drop_are_no_finding(readings: list[tuple[float, int]]) -> None:
    assert not of_clocks(a_step({}), readings)


@pytest.mark.parametrize(
    ("mean", "throttled", "idle", "lost"),
    [
        # Of steps that are all kernels, or half, the part that the clock is lower: from three in a hundred of the step
        # on, and where something limited it in five in a hundred of the samples.
        (0.9e9, 0.05, 0.0, 0.1),
        (0.9e9, 0.049, 0.0, None),
        (0.97e9, 1.0, 0.0, 0.03),
        (0.971e9, 1.0, 0.0, None),
        (0.9e9, 1.0, 0.5, 0.05),
        (0.95e9, 1.0, 0.5, None),
        (0.9e9, float("nan"), 0.0, None),
    ],
)
def test_what_a_lower_clock_costs(mean: float, throttled: float, idle: float, lost: float | None) -> None:
    sampled = {"sm_clock_hz": mean, "sm_clock_high_hz": 1e9, "throttled_share": throttled, "clocks": "power"}
    step = a_step({"idle_host": idle} if idle else {})
    found = of_clocks(step, **sampled)
    told = [(row.value, row.share, row.gain, row.gain_high, row.threshold, row.gain_low, row.cured, row.trials)
            for row in found]  # fmt: skip
    right = (lost, lost, 1 / (1 - lost), 1 / (1 - lost), 0.03, 1.0, 1.0, 0) if lost else ()
    assert told == [pytest.approx(right)] * bool(lost)
    said = f"the SM clock was {mean / 1e6:,.0f} MHz in the mean and 1,000 MHz at best (power): "
    assert all(row.next_step.startswith(said) for row in found)
    # A high clock that is not known tells of no loss.
    assert not of_clocks(step, **sampled | {"sm_clock_high_hz": 0.0})
