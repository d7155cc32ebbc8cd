"""timeline_data: timelines of many cells fit into a page, and lose no time and no operation."""

import itertools
from typing import Any

import numpy as np
import pytest

from profzoo.report import timeline_data

STEP_NS = 20_000_000


def timeline(operations: int, seed: int = 0) -> dict[str, Any]:
    """A step with so many kernels of two names on a stream, a call before each, a gap after each, and a track."""
    dice = np.random.default_rng(seed)
    starts = np.sort(dice.choice(STEP_NS - 1000, operations, replace=False))
    lengths = np.minimum(np.diff([*starts, STEP_NS]), 1 + dice.integers(1, 100, operations))
    rows = [[int(at), int(ns), place % 2 + 1] for place, (at, ns) in enumerate(zip(starts, lengths, strict=True))]
    spans = [[at, ns, float(ns), 0] for at, ns, _ in rows]
    track = {"name": "SMs active", "unit": "%", "top": 100.0, "peak": 100.0, "labels": [""], "spans": spans}
    return {"step": 1, "steps": 2, "ns": STEP_NS, "names": ["step", "a", "b"], "ranges": [[0, STEP_NS, 0]], "calls": rows,
            "streams": {"7": rows}, "gaps": [[at + ns, 1, place % 3] for at, ns, place in rows], "tracks": [track],
            "not_collected": []}  # fmt: skip


def unfolded(columns: Any, grain: int) -> list[list[float]]:
    """Rows as the page's script unfolds them."""
    end, rows = 0.0, []
    for start, ns, *more in zip(*columns, strict=True):
        rows.append([end + start * grain, ns, *more])
        end = rows[-1][0] + ns
    return rows


def count(step: Any) -> int:
    return sum(map(len, (step["calls"], step["gaps"], *step["streams"].values(), step["tracks"][0]["spans"])))


def test_many_timelines_have_as_many_spans_as_a_page_may_and_small_ones_stay_whole() -> None:
    given = {(f"m{size}", "train"): timeline(size) for size in (50, 300, 2000, 4000)}
    found = timeline_data.thin_timelines(given, 8000)  # type: ignore[arg-type]
    for size in (50, 300):
        assert found[f"m{size}", "train"] == given[f"m{size}", "train"]
    assert 4000 < sum(count(step) for step in found.values()) <= 8000 * 1.3
    large, thin = given["m4000", "train"], found["m4000", "train"]
    # All operations are still counted, and the time of gaps by cause is what it was.
    assert sum(row[3] for row in thin["streams"]["7"]) == sum(row[3] for row in thin["calls"]) == 4000
    for cause in range(3):
        assert sum(ns for _, ns, of in thin["gaps"] if of == cause) == sum(
            ns for _, ns, of in large["gaps"] if of == cause
        )
    assert thin["names"] == large["names"] and thin["ranges"] == large["ranges"]


def test_a_page_of_few_cells_keeps_every_span() -> None:
    given = {("m", "train"): timeline(4000)}
    assert timeline_data.thin_timelines(given) == given  # type: ignore[arg-type]
    assert timeline_data.thin_timelines({}) == {}


@pytest.mark.parametrize("ns", [STEP_NS, 900, 3_000_000_000])
def test_columns_give_the_rows_back_within_a_grain(ns: int) -> None:
    grain = timeline_data.find_grain(ns)
    assert grain <= max(1, ns * timeline_data.RESOLUTION)
    dice = np.random.default_rng(1)
    # Ranges within others begin before the one before has ended.
    rows = [[int(at), int(length), place] for place, (at, length) in enumerate(dice.integers(0, ns, (500, 2)))]
    found = unfolded(timeline_data.fold_rows(rows, grain), grain)
    for (at, length, place), (known, was, same) in zip(sorted(rows, key=lambda row: row[0]), found, strict=True):
        assert abs(at - known) <= grain / 2 and was == pytest.approx(length, rel=6e-4) and place == same
    assert timeline_data.fold_rows([], grain) == []


def test_a_timeline_is_folded_with_all_its_rows() -> None:
    step = timeline(100)
    found = timeline_data.fold_timeline(step)
    starts = itertools.chain(found["calls"][:1], found["streams"]["7"][:1], found["tracks"][0]["spans"][:1])
    assert all(len(column) == 100 for column in starts) and found["names"] == step["names"]
    again = unfolded(found["gaps"], found["grain"])
    assert [row[2] for row in again] == [row[2] for row in step["gaps"]]
