"""Lengths of later windows: the steps that a spread asks for, and spreads of written steps."""

from pathlib import Path

import numpy as np
import pytest

from profzoo.experiments import shorter_windows


def write_steps(path: Path, times: np.ndarray, gpu: bool) -> Path:
    rows = [f"{index},{1 if gpu else round(ns)},{round(ns) if gpu else ''}" for index, ns in enumerate(times)]
    path.write_text("step,wall_ns,gpu_ns\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("spread", [0.001, 0.01, 0.05])
def test_the_spread_of_drawn_steps_is_found(tmp_path: Path, spread: float, gpu: bool) -> None:
    drawn = np.random.default_rng(1).normal(1.0, spread, (5, 400)) * 1e9
    paths = [write_steps(tmp_path / f"{place}.csv", times, gpu) for place, times in enumerate(drawn)]
    assert shorter_windows.measure_spread(paths) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("spread", [0.003, 0.006, 0.008])
def test_the_mean_of_a_window_is_known_to_a_tenth_of_the_margin(spread: float) -> None:
    count = shorter_windows.count_needed_steps(spread, 0.02, 10**6)
    means = np.random.default_rng(2).normal(1.0, spread, (4000, count)).mean(axis=1)
    assert means.std() <= 0.002 * 1.05 and (count == shorter_windows.LEAST or means.std() >= 0.002 * 0.9)


def test_one_slow_process_does_not_lengthen_the_windows_of_all(tmp_path: Path) -> None:
    steady = [write_steps(tmp_path / f"{place}.csv", np.full(20, 1e6), True) for place in range(4)]
    wild = write_steps(tmp_path / "wild.csv", np.linspace(1e6, 9e6, 20), True)
    assert shorter_windows.shorten_window(["lstm", "window=20"], [*steady, wild], 0.02) == ["window=8"]


def test_a_cell_keeps_its_window_where_nothing_is_known_of_it(tmp_path: Path) -> None:
    assert shorter_windows.shorten_window(["lstm", "window=20"], [], 0.02) == ["window=20"]
    # Windows are never lengthened, and a command of a user's own may have none.
    assert shorter_windows.shorten_window(["lstm", "window=4"], [], 0.02) == ["window=4"]
    assert shorter_windows.shorten_window(["script"], [], 0.02) == []
