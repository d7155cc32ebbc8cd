"""counter_changes: no change between recordings of one cell, planted changes found and named, sums that add up."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from profzoo.compare import counter_changes
from profzoo.compare.counter_changes import CHANGED, SAME, UNDECIDED, CountedCell, compare_counters, decide_changes
from profzoo.tools.ncu.estimates import GPU_TIME, Window
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from tests import slow
from tests.conftest import DATA

METRICS = {"read": "dram__bytes_read.sum", "write": "dram__bytes_write.sum", "l2": "lts__t_bytes.sum"}
MARGIN, LAYERS = 0.02, 25


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    """Every launch of four cells on an H100; 309 of them were counted twice, in another run."""
    return pd.read_csv(DATA / "launches/twice.csv.gz", keep_default_na=False, na_values=[""])


def cell_of(rows: pd.DataFrame, again: str = "") -> CountedCell:
    """A cell in which every launch was counted; again: `_again` for what the second run counted."""
    rows = rows.reset_index(drop=True)
    named = {"mangled": "k" + rows["kernel"].astype(str), "kernel": rows["function"] + " " + rows["kernel"].astype(str)}
    same = {key: 1 for key in KEYS if key not in ("mangled", "grid_x")}
    launches = rows[["class", "function", "range"]].assign(**named, **same, grid_x=rows["configuration"], id=rows.index)
    layer = "layer." + (rows.index.to_series() * LAYERS // len(rows)).astype(str)
    owned = launches.assign(**{GPU_TIME: rows["census_ns"], "module": layer, "direction": rows["range"]})
    counted = launches.assign(**{metric: rows[f"{name}{again}"].astype("float64") for name, metric in METRICS.items()})
    return CountedCell(owned, [counted.assign(**{GPU_TIME: rows["ns"].astype("float64")})])


def sampled(cell: CountedCell, seed: int) -> CountedCell:
    """One launch of each group of similar launches, chosen at random, counted in a run with its own noise."""
    random = np.random.default_rng(seed)
    window = Window(cell.launches)
    chosen = np.sort([random.choice(np.flatnonzero(window.cells == one)) for one in range(len(window.sizes))])
    sizes = window.sizes[window.cells[chosen]].astype(float)
    rows = cell.sets[0].iloc[chosen].assign(launch=chosen, multiplicity=sizes)
    errors = {metric: 0.003 if "lts" in metric else 0.01 for metric in METRICS.values()}
    noise = {metric: np.exp(random.normal(0, error, len(rows))) for metric, error in errors.items()}
    return replace(cell, sets=[rows.assign(**{metric: rows[metric] * factor for metric, factor in noise.items()})])


def outcomes(*sides: tuple[CountedCell, CountedCell]) -> pd.DataFrame:
    rows = pd.concat([compare_counters(*pair, MARGIN) for pair in sides], ignore_index=True)
    return rows.assign(outcome=decide_changes(rows))


def planted(cell: CountedCell, layer: str, factor: float, metrics: Sequence[str] = (METRICS["read"],)) -> CountedCell:
    """The cell with more bytes in one layer, whose launches take longer in proportion."""
    mine = (cell.launches["module"] == layer).to_numpy()
    times = cell.launches[GPU_TIME] * np.where(mine, factor, 1.0)
    table = cell.sets[0]
    more = {metric: table[metric] * np.where(mine, factor, 1.0) for metric in metrics}
    return replace(cell, launches=cell.launches.assign(**{GPU_TIME: times}), sets=[table.assign(**more)])


def test_a_mean_is_weighted_alike_on_both_sides(few: CountedCell) -> None:
    """As of two section sets, of which only one has the active cycles by which occupancy is weighted."""
    cell, (table,) = few, few.sets
    busy = np.where(np.arange(len(table)) % 2, 90.0, 10.0)
    occupied = table.assign(**{"sm__warps_active.avg.pct_of_peak_sustained_active": busy})
    cycles = occupied.assign(**{"sm__cycles_active.avg": np.where(busy > 50, 1e6, 1.0)})
    found = outcomes((replace(cell, sets=[cycles]), replace(cell, sets=[occupied])))
    rates = found[found["quantity"] == "occupancy_pct"]
    assert len(rates) and CHANGED not in set(rates["outcome"]) and (rates["delta"] == 0).all()
    weighted = outcomes((replace(cell, sets=[cycles]), replace(cell, sets=[cycles])))
    whole = weighted[(weighted["quantity"] == "occupancy_pct") & (weighted["level"] == "cell")]
    assert whole["baseline_value"].iloc[0] == pytest.approx(90, rel=1e-3)


OF_TENSOR_CORES = {"bf16": "bf16_dst_fp32", "fp16": "fp16", "tf32": "tf32_dst_fp32", "fp8": "fp8", "int8": "int8"}


def multiplying(cell: CountedCell, precision: str) -> CountedCell:
    """The cell with a product of 2^37 operations in this precision; those in 8 bits are counted in their cells alone."""
    asked = ["bf16", "fp16", "tf32", *({"fp8", "int8"} & {precision})]
    first = np.arange(len(cell.sets[0])) == 0
    counts = {f"sm__ops_path_tensor_src_{OF_TENSOR_CORES[one]}.sum": np.where(first, 2.0**37, 0.0) * (one == precision)
              for one in asked}  # fmt: skip
    return replace(cell, sets=[cell.sets[0].assign(**counts)])


@pytest.fixture(scope="module")
def few(recorded: pd.DataFrame) -> CountedCell:
    """The first launches of a cell."""
    return cell_of(recorded[recorded["cell"] == "bert.inference"].head(24))


def test_kernels_and_metrics_are_the_same_by_other_names(few: CountedCell) -> None:
    """As nsys and ncu print `f<(int)4>` and `f<4>`; L2 by sectors instead of bytes, and DRAM by names of another GPU."""
    (table,) = few.sets
    names = {METRICS["read"]: "dram__bytes_op_read.sum", METRICS["write"]: "dram__bytes_op_write.sum"}
    by_sectors = table.rename(columns=names).assign(**{"lts__t_sectors.sum": table[METRICS["l2"]] / 32})
    renamed = few.launches.assign(kernel="void " + few.launches["kernel"])
    other = replace(few, launches=renamed, sets=[by_sectors.drop(columns=METRICS["l2"])])
    found = outcomes((few, other))
    assert set(found["quantity"]) == {"dram_bytes", "l2_bytes"}
    assert found["baseline_value"].tolist() == pytest.approx(found["candidate_value"].tolist())
    kernels = found[found["level"] == "kernel"]
    assert set(kernels["change"]) == {""} and set(kernels["name"]) == set(few.launches["kernel"])
    bare = replace(few, sets=[table.drop(columns=list(METRICS.values()))])
    assert compare_counters(few, bare, MARGIN).empty


def test_what_was_not_launched_or_not_counted_is_said(few: CountedCell) -> None:
    rows = few.launches["kernel"] != few.launches["kernel"].iloc[-1]
    launches, table = (one[rows].reset_index(drop=True) for one in (few.launches, few.sets[0]))
    fewer = replace(few, launches=launches, sets=[table])
    found = outcomes((few, fewer))
    gone = found[(found["level"] == "kernel") & (found["change"] == "vanished")]
    assert len(gone) and (gone["candidate_value"] == 0).all()
    cell = sampled(few, 0)
    found = outcomes((cell, replace(cell, sets=[cell.sets[0].iloc[: len(cell.sets[0]) // 2]])))
    whole = found[found["level"] == "cell"]
    assert (whole["outcome"] == UNDECIDED).all() and (whole["change"] == counter_changes.NOT_ALL).all()


@pytest.mark.parametrize(("reference", "candidate"), slow.first([("int8", "bf16"), ("bf16", "fp8"), ("fp8", "int8")]))
def test_products_in_8_bits_are_operations_of_tensor_cores(few: CountedCell, reference: str, candidate: str) -> None:
    one, other = multiplying(few, reference), multiplying(few, candidate)
    # What only one set counts is not a change.
    more = replace(one, sets=[one.sets[0].assign(**{"sm__ops_path_tensor_src_fp64.sum": 1e12})])
    whole = outcomes((more, other)).query("level == 'cell' and quantity == 'tensor_flop'")
    assert whole[["baseline_value", "candidate_value"]].to_numpy().tolist() == [[2.0**37, 2.0**37]]
    assert (whole["outcome"] == SAME).all()
    # A side whose set counts nothing of tensor cores has no zero of them either.
    assert "tensor_flop" not in set(outcomes((few, other))["quantity"])


def test_launches_that_two_runs_counted_did_not_change(recorded: pd.DataFrame) -> None:
    """The false alarms of four cells, whose launches were counted in two runs of ncu on one machine."""
    twice = recorded[recorded["read_again"].notna()]
    pairs = [(cell_of(rows), cell_of(rows, "_again")) for _, rows in twice.groupby("cell", sort=False)]
    found = outcomes(*pairs)
    assert len(found) > 400
    assert (found["outcome"] == CHANGED).sum() == 0
    # Not all are undecided, which would raise no false alarm either.
    assert (found["outcome"] == SAME).mean() > 0.05
    assert (found[found["level"] == "cell"]["outcome"] == SAME).sum() >= 5


@pytest.mark.parametrize("longer", [True, False])
@pytest.mark.parametrize("name", slow.first(["unet.inference", "bert.train"]))
def test_doubled_bytes_in_one_layer_are_found_and_named(recorded: pd.DataFrame, name: str, longer: bool) -> None:
    cell = cell_of(recorded[recorded["cell"] == name])
    layers = cell.sets[0].groupby(cell.launches["module"])[METRICS["read"]].sum()
    layer = str(layers.idxmax())
    other = planted(cell, layer, 2)
    # Launches that take no longer look like others of their configuration, in other layers.
    found = outcomes((cell, other if longer else replace(other, launches=cell.launches)))
    changed = found[(found["outcome"] == CHANGED) & (found["quantity"] == "dram_bytes")]
    mine = found[(found["level"] == "layer") & (found["quantity"] == "dram_bytes")].iloc[0]
    assert mine["name"] == layer and mine["outcome"] == CHANGED
    both = found.query("level == 'layer' and quantity == 'dram_bytes'").query("name == @layer")
    assert both["delta"].sum() == pytest.approx(layers[layer])
    assert set(changed.loc[changed["level"].isin(["layer", "layer kernel"]), "name"]) == {layer}
    # What was left alone is not called changed.
    assert not (found.loc[found["quantity"] == "l2_bytes", "outcome"] == CHANGED).any()


def test_levels_add_up_to_the_cell(recorded: pd.DataFrame) -> None:
    cell = cell_of(recorded[recorded["cell"] == "unet.inference"])
    found = outcomes((cell, replace(planted(cell, "layer.3", 3), per=2.0)))
    assert set(found["level"]) == set(counter_changes.LEVELS)
    for quantity, rows in found.groupby("quantity"):
        sums = rows.groupby("level")[["baseline_value", "candidate_value", "delta", "baseline_launches"]].sum()
        assert np.allclose(sums, sums.loc["cell"]), quantity
    whole = found[(found["level"] == "cell") & (found["quantity"] == "dram_bytes")].iloc[0]
    table = cell.sets[0]
    assert whole["baseline_value"] == pytest.approx(table[METRICS["read"]].sum() + table[METRICS["write"]].sum())
    # Half as much per step where the window has two steps.
    assert whole["candidate_launches"] == len(table) / 2


def test_rates_are_compared_in_points_and_weighted() -> None:
    rows = {"kernel": 0, "function": "f", "class": "gemm", "range": "forward", "configuration": [0, 1], "census_ns": 9e4,
            "ns": 9e4, "read": [1e6, 1e6], "write": 0.0, "l2": [1e6, 3e6]}  # fmt: skip
    cell = cell_of(pd.DataFrame(rows))

    def with_hits(first: float, second: float) -> CountedCell:
        return replace(cell, sets=[cell.sets[0].assign(**{"lts__t_sector_hit_rate.pct": [first, second]})])

    found = outcomes((with_hits(60, 20), with_hits(60, 80)), (with_hits(60, 20), with_hits(60, 20)))
    hits = found[(found["quantity"] == "l2_hit_pct") & (found["level"] == "cell")]
    # By the bytes that went through L2.
    assert hits["baseline_value"].tolist() == pytest.approx([30, 30])
    assert hits["delta"].tolist() == pytest.approx([45, 0]) and hits["delta_share"].isna().all()
    assert hits["outcome"].tolist()[0] == CHANGED and hits["outcome"].tolist()[1] != CHANGED


def estimated(value: float, error: float, freedom: float) -> pd.DataFrame:
    return pd.DataFrame({"value": [value], "error": [error], "freedom": [freedom]})


@pytest.mark.parametrize(
    ("one", "other", "points", "right"),
    [
        # 20 more of 100, of which 10 are allowed, with errors of 3 and 4, which are 5 together: 4 and 2 errors.
        ((100.0, 3.0, np.inf), (120.0, 4.0, np.inf), None, (20.0, 4.0, 2.0, 1e6, True, True)),
        ((120.0, 4.0, np.inf), (100.0, 3.0, np.inf), None, (-20.0, 4.0, 1.6, 1e6, True, True)),
        # Of rates 5 points are allowed.
        ((100.0, 3.0, np.inf), (120.0, 4.0, np.inf), 5.0, (20.0, 4.0, 3.0, 1e6, True, True)),
        # Welch: 5^4 over 3^4 / 4 and 4^4 / 9. Two degrees of freedom are the fewest.
        ((100.0, 3.0, 4.0), (120.0, 4.0, 9.0), None, (20.0, 4.0, 2.0, 625 / (81 / 4 + 256 / 9), True, True)),
        ((100.0, 3.0, 1.0), (120.0, 4.0, 9.0), None, (20.0, 4.0, 2.0, 625 / (81 / 2 + 256 / 9), True, True)),
        # Half widths are 1.645 errors: 106.6 and 107.8 are apart, 107 and 106 are not.
        ((100.0, 4.0, np.inf), (110.0, 1.0, np.inf), None, (10.0, 10 / 17**0.5, 0.0, 1e6, False, True)),
        ((100.0, 4.0, np.inf), (108.0, 1.0, np.inf), None, (8.0, 8 / 17**0.5, -2 / 17**0.5, 1e6, False, False)),
    ],
)
def test_what_decides_about_a_difference(one: tuple, other: tuple, points: float | None, right: tuple) -> None:
    sides = {"baseline": estimated(*one), "candidate": estimated(*other)}
    found = counter_changes._differences(sides, points, 0.1).iloc[0]
    delta, different, equivalent, freedom, beyond, apart = right
    assert found["delta"] == delta and (found["beyond"], found["apart"]) == (beyond, apart)
    if points is None and one[0] == 120:
        equivalent = (20 - 12) / 5
    assert found["p_different"] == pytest.approx(2 * stats.t.sf(different, freedom), rel=1e-6)
    assert found["p_equivalent"] == pytest.approx(stats.t.cdf(equivalent, freedom), rel=1e-6)
    for side, given in (("baseline", one), ("candidate", other)):
        if np.isinf(given[2]):
            ends = [given[0] - 1.6449 * given[1], given[0] + 1.6449 * given[1]]
            assert found[[f"{side}_value_low", f"{side}_value_high"]].tolist() == pytest.approx(ends, rel=1e-5)


@pytest.mark.parametrize(
    ("value", "different", "equivalent", "beyond"),
    [(100.0, 1.0, 0.0, False), (105.0, 0.0, 0.0, False), (110.0, 0.0, 0.0, False), (120.0, 0.0, 1.0, True)],
)
def test_values_without_errors_are_equal_or_not(
    value: float, different: float, equivalent: float, beyond: bool
) -> None:
    sides = {"baseline": estimated(100.0, 0.0, np.inf), "candidate": estimated(value, 0.0, np.inf)}
    found = counter_changes._differences(sides, None, 0.1).iloc[0]
    assert (found["p_different"], found["p_equivalent"], found["beyond"]) == (different, equivalent, beyond)
    # No interval is below 0.
    sides = {"baseline": estimated(1.0, 3.0, np.inf), "candidate": estimated(1.0, 3.0, np.inf)}
    assert counter_changes._differences(sides, None, 0.1)["baseline_value_low"].tolist() == [0.0]


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        # Different, alike; larger than the margin; intervals apart; whether all launches were counted.
        ((0.05, 1.0, True, True, ""), CHANGED),
        ((0.051, 1.0, True, True, ""), UNDECIDED),
        ((0.0, 1.0, False, True, ""), UNDECIDED),
        ((0.0, 1.0, True, False, ""), UNDECIDED),
        ((0.0, 1.0, True, True, counter_changes.NOT_ALL), UNDECIDED),
        ((1.0, 0.05, False, False, ""), SAME),
        ((1.0, 0.051, False, False, ""), UNDECIDED),
        ((1.0, 0.0, False, False, counter_changes.NOT_ALL), UNDECIDED),
    ],
)
def test_a_change_is_sure_large_and_of_all_launches(row: tuple, outcome: str) -> None:
    rows = pd.DataFrame([row], columns=["p_different", "p_equivalent", "beyond", "apart", "change"])
    assert decide_changes(rows).tolist() == [outcome]
    # Of two differences, the least likely by chance has to be half as likely (Benjamini and Hochberg).
    if outcome == CHANGED:
        for chance, decided in ((0.05, UNDECIDED), (0.025, CHANGED)):
            both = pd.concat([rows.assign(p_different=chance), rows.assign(p_different=0.9)])
            assert decide_changes(both).iloc[0] == decided
    assert decide_changes(rows[:0]).empty


def test_values_per_step_and_of_groups_that_a_side_lacks() -> None:
    frame = pd.DataFrame({"x": [10.0, np.nan], "x_error": [4.0, np.nan], "x_freedom": [7.0, np.nan],
                          "launches": [3.0, np.nan]})  # fmt: skip
    found = counter_changes._values(frame, "x", 2.0, 0.0)
    assert found.to_numpy().tolist() == [[5.0, 2.0, 7.0], [0.0, 0.0, np.inf]]
    assert np.isnan(counter_changes._values(frame, "x", 2.0, np.nan)["value"][1])
