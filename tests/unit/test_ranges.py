"""ranges: which range belongs to which number of every table, and that no number lies outside of its own."""

import importlib
import pkgutil
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import profzoo
from profzoo.io.csv_tables import Table
from profzoo.statistics import process_repeats
from profzoo.tables import cell_tables, schemas
from profzoo.what_if import tables as replay
from tests import number_intervals

# How a column says that it is an end of a range.
ENDS = ("low", "high", "least", "most", "min", "max", "quartile")
# Largest values of the table of cells, which has no smallest ones.
ALONE = ("sm_clock_high_hz", "temperature_max_c")


def tables() -> Iterator[tuple[str, Table]]:
    """Every table that a module of profzoo declares or imports, by module and name."""
    for module in pkgutil.walk_packages(profzoo.__path__, "profzoo."):
        if not module.name.endswith("__main__"):
            for name, found in vars(importlib.import_module(module.name)).items():
                of_name = found.items() if name == "TABLES" and isinstance(found, dict) else [(name, found)]
                yield from ((f"{module.name}.{key}", table) for key, table in of_name if isinstance(table, Table))


@pytest.mark.slow
def test_every_end_of_a_range_belongs_to_a_number() -> None:
    found = dict(tables())
    assert len({id(table) for table in found.values()}) > 25
    known = {path: _known(table) for path, table in found.items()}
    for path, table in found.items():
        ends = {end for pair in known[path].values() for end in pair}
        words = {name: set(name.split("_")) & set(ENDS) for name in [*table.columns, *table.optional]}
        lone = [name for name in words if words[name] and name not in {*ends, *ALONE}]
        assert lone == [], f"{path}: of which number are {lone} the range?"


def _known(table: Table) -> dict[str, tuple[str, str]]:
    return number_intervals.interval_columns([*table.columns, *table.optional], table.ranges)


def test_a_number_outside_of_its_range_is_named() -> None:
    table = pd.DataFrame({"gain": [2.0, np.nan, 3.0], "low": [1.0, 1.0, 3.1], "high": [2.0, 2.0, 3.2]})
    assert number_intervals.find_outside_interval(table.head(2), replay.GAINS) is None
    said = "row 3: gain 3 is outside low to high, 3.1 to 3.2"
    assert number_intervals.find_outside_interval(table, replay.GAINS) == said


def facts(steps: int) -> dict:
    cell = {"workload": "trimmed", "precision": "fp32"}
    return {"cell": cell, "device": "cpu", "started": "2026-11-20T10", "parameters": 1, "batch": 1, "steps": steps,
            "items": steps, "peak_memory_bytes": None, "peak_rss_bytes": 1, "loss": None}  # fmt: skip


def test_a_mean_beyond_the_quartiles_lies_in_an_interval_of_its_own() -> None:
    """20 steps after the first: 16 of 1 ms and 4 of 6 ms, of which the mean is 2 ms and the quartiles are both 1 ms."""
    # One of five in each fifth of the window, so that the parts are alike and MSER cuts nothing.
    ms = [9.0, *[1.0, 1.0, 6.0, 1.0] * 4, *[1.0, 1.0, 1.0, 1.0]]
    frame = pd.DataFrame({"wall_ns": np.array(ms) * 1e6, "gpu_ns": np.nan})
    table = cell_tables.cells([({"model": "m", "phase": "train"}, frame, facts(len(ms)))])
    row = table.iloc[0]
    assert row["step_ns"] == pytest.approx(2e6) and row["step_median_ns"] == 1e6
    assert (row["step_lower_quartile_ns"], row["step_upper_quartile_ns"]) == (1e6, 1e6)
    # Parts of 2.25, 2.25, 2.25, 2.25 and 1 ms: their deviation is 0.559 ms, the error 0.25 ms, t of 4 degrees 2.776.
    assert row["step_low_ns"] == pytest.approx(2e6 - 2.776 * 0.25e6, rel=1e-3)
    assert row["step_high_ns"] == pytest.approx(2e6 + 2.776 * 0.25e6, rel=1e-3)
    assert number_intervals.find_outside_interval(table, schemas.TABLES["cells"]) is None


def test_no_steps_put_a_number_outside_of_its_range() -> None:
    random = np.random.default_rng(3)
    for _ in range(60):
        spread = random.choice([0.01, 0.5, 2.0])
        given = [np.exp(random.normal(0, spread, random.integers(1, 9))) for _ in range(random.integers(1, 6))]
        found = process_repeats.summarise_processes(given)
        assert found.lower_quartile_ns <= found.median_ns * (1 + 1e-12)
        assert found.median_ns <= found.upper_quartile_ns * (1 + 1e-12)
        assert not found.mean_low_ns > found.mean_ns and not found.mean_high_ns < found.mean_ns


def test_one_process_of_two_whose_steps_spread_is_told() -> None:
    level, wide = np.full(12, 100.0), np.array([90.0, 110.0, 110.0, 90.0] * 3)
    # A mean a third above the median in one of two.
    tail = np.array([*[100.0] * 9, 500.0, *[100.0] * 2])
    longer = "some steps take much longer, so that the mean is 33% above the median"
    for other, said in ((wide, "the middle half of the steps spreads by 20%"), (tail, longer)):
        for given in ([level, other], [other, level]):
            assert process_repeats.summarise_processes(given).unsteady == said


def test_what_others_took_is_said_beside_what_is_wrong() -> None:
    found = process_repeats.summarise_processes([np.full(9, 100.0), np.full(9, 120.0)], 0.25)
    apart, used = (
        "the slowest process takes 20% longer than the fastest",
        "other programs used the CPU up to 25% of the time",
    )
    assert found.unsteady == f"{apart}; {used}"
    each = [{"cpu_taken_share": None}, {"cpu_taken_share": 0.2}, {}]
    assert process_repeats.cpu_taken_shares({"processes": each}) == 0.2
    assert process_repeats.cpu_taken_shares({"cpu_taken_share": 0.0}) == 0
    assert np.isnan(process_repeats.cpu_taken_shares({"processes": []}))
