"""Tests of the history: lines and machines that must not be mixed, steps with a known place and size, and the figure."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.cli import gate as command
from profzoo.errors import DataError
from profzoo.figures import history as figure
from profzoo.figures import plots
from profzoo.referee import history
from profzoo.referee.history import Point
from tests.unit.test_gate import Judged, commit, stored

ONE = {"gpu": "NVIDIA H200", "cpu": "16 x Xeon", "driver": "580.1", "torch": "2.11.0"}
OTHER = ONE | {"driver": "575.2"}


def series(values: np.ndarray, facts: dict[str, str] = ONE, program: str = "a.py train") -> list[Point]:
    """Points of a program on a machine, a day apart."""
    return [
        Point(
            history.name_machine(facts),
            facts,
            f"{at:040x}",
            f"2026-01-{at + 1:02d}T00:00:00+00:00",
            program,
            float(value),
        )
        for at, value in enumerate(values)
    ]


def noise(seed: int, count: int = 30, spread: float = 0.02) -> np.ndarray:
    """Times of a step with a spread of so much."""
    made: np.ndarray = 0.01 * np.exp(np.random.default_rng(seed).normal(0, spread, count))
    return made


def test_machines_differ_by_each_of_their_facts() -> None:
    names = {history.name_machine(ONE | {name: "other"}) for name in history.FACTS}
    assert len({*names, history.name_machine(ONE)}) == 5
    assert history.name_machine(dict(reversed(ONE.items()))) == history.name_machine(ONE)


def test_this_machine_has_all_facts() -> None:
    found = history.describe_machine()
    assert set(found) == set(history.FACTS)
    assert found["torch"][0].isdigit() and found["cpu"] and all(found.values())


def test_points_are_kept_once_and_by_machine(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    mine, its = series(noise(0, 3)), series(noise(1, 3), OTHER)
    assert history.add_points(file, [*mine, *its]) == 6
    assert history.add_points(file, mine) == 0
    # A line without its end, as an editor leaves it.
    file.write_text(file.read_text().rstrip("\n"))
    assert history.add_points(file, [replace(mine[0], seconds=1.0)]) == 1
    found = history.group_points(history.read_history(file))
    assert {key[0]: len(own) for key, own in found.items()} == {mine[0].machine: 4, its[0].machine: 3}


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"seconds": 0}, "a time of 0 s"), ({"seconds": "x"}, "damaged"), ({"version": 2}, "version 2"),
        ({"machine": "00000000"}, "facts of another machine"), ({"facts": {}}, "damaged"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named(changed: dict[str, object], told: str, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    history.add_points(file, series(noise(0, 2)))
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{json.dumps(json.loads(second) | changed)}\n")
    with pytest.raises(DataError, match=f"line 2.*{told}"):
        history.read_history(file)


def test_steps_are_found_with_their_place_and_size() -> None:
    values = noise(0, 60, 0.01)
    values[20:] *= 1.10
    values[40:] *= 0.95
    first, second = history.find_steps(values)
    assert (first.place, second.place) == (20, 40)
    assert first.low <= 1.10 <= first.high < 1.13
    assert second.low <= 0.95 <= second.high < 1
    assert first.p == second.p == 1 / (1 + history.PERMUTATIONS)


def test_series_without_a_step_have_none_as_often_as_the_level_says() -> None:
    # With this level of 5 %, 13 or more of 120 are found with a probability below 1 %.
    found = sum(bool(history.find_steps(noise(seed), level=0.05, seed=seed)) for seed in range(120))
    assert 1 <= found <= 13


def test_the_confidence_set_holds_the_place_as_often_as_it_says() -> None:
    held = known = 0
    for seed in range(80):
        values = noise(seed, 40)
        values[17:] *= 1.04
        if len(steps := history.find_steps(values, seed=seed)) == 1:
            known, held = known + 1, held + (steps[0].first <= 17 <= steps[0].last)
            assert steps[0].first <= steps[0].place <= steps[0].last
    assert known >= 70
    assert held / known >= 0.9


@pytest.mark.parametrize("values", [[], [0.01], [0.01] * 40, list(noise(0, 2 * history.LEAST - 1))])
def test_short_or_constant_series_have_no_step(values: list[float]) -> None:
    assert history.find_steps(values) == []


def test_machines_are_never_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second machine is twice as slow, and neither has a step."""
    monkeypatch.chdir(tmp_path)
    history.add_points(tmp_path / "h.jsonl", [*series(noise(0, 20)), *series(2 * noise(1, 20), OTHER)])
    assert command.main_history(["--file", "h.jsonl"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("no step") == 2 and printed.count("20 points") == 2


def test_an_answer_is_added_with_its_commit_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = commit(tmp_path / "r")
    monkeypatch.chdir(tmp_path / "r")
    Path("answer.json").write_text(
        stored(
            Judged("a.py train", "slower", 1.2, after_s=0.012),
            Judged("b.py train", "undecided"),
            Judged("c.py train", "different", after_s=0.5),
        )
    )
    assert command.main_history(["add", "answer.json"]) == 0
    (point,) = history.read_history(Path("profzoo-history.jsonl"))
    assert (point.commit, point.program, point.seconds) == (head, "a.py train", 0.012)
    assert point.machine == history.name_machine(history.describe_machine())


def test_the_figure_has_a_panel_for_each_program_and_machine_and_names_steps(tmp_path: Path) -> None:
    values = noise(0, 30)
    values[12:] *= 1.2
    history.add_points(
        tmp_path / "h.jsonl", [*series(values), *series(noise(1, 1), OTHER), *series(noise(2), ONE, "b.py <i>")]
    )
    target = tmp_path / "h.svg"
    assert command.main_history(["--file", str(tmp_path / "h.jsonl"), "--figure", str(target)]) == 0
    svg = target.read_text()
    assert svg.count("time per step (ms)") == 3
    (step,) = history.find_steps(values)
    assert f"{step.ratio - 1:+.1%}" in svg and "b.py &lt;i&gt;" in svg and "<i>" not in svg
    assert command.main_history(["--file", str(tmp_path / "h.jsonl"), "--figure", "h.txt"]) == 1


def test_a_history_without_points_says_so() -> None:
    drawn = figure.draw(pd.DataFrame(), pd.DataFrame())
    assert "no measurement" in drawn.axes[0].texts[0].get_text()
    plots.plt.close(drawn)


def test_the_panel_is_readable_with_one_point_and_with_a_step_at_its_end() -> None:
    values = noise(3, 20)
    values[16:] *= 1.3
    (step,) = history.find_steps(values)
    rows = pd.DataFrame([{"device": "x", **vars(point)} for point in [*series(values), *series(values[:1], OTHER)]])
    own = {"machine": history.name_machine(ONE), "program": "a.py train", **vars(step)}
    drawn = figure.draw(rows, pd.DataFrame([own]))
    drawn.canvas.draw()
    (label,) = [text for axis in drawn.axes for text in axis.texts]
    box, frame = label.get_window_extent(), label.axes.get_window_extent()
    assert frame.x0 <= box.x0 and box.x1 <= frame.x1
    assert all(math.isfinite(end) for axis in drawn.axes for end in axis.get_ylim())
    plots.plt.close(drawn)
