"""counter_changes: no change between recordings of one cell, planted changes found and named, sums that add up."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from profzoo.compare import counter_changes
from profzoo.compare.counter_changes import CHANGED, SAME, UNDECIDED, CountedCell, compare_counters, decide_changes
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window
from tests import slow
from tests.conftest import DATA

METRICS = {"read": "dram__bytes_read.sum", "write": "dram__bytes_write.sum", "l2": "lts__t_bytes.sum"}
CELLS = ("mobilenetv2.train", "bert.train", "bert.inference", "unet.inference")
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
    rows = (
        cell.sets[0].iloc[chosen].assign(launch=chosen, multiplicity=window.sizes[window.cells[chosen]].astype(float))
    )
    noise = {
        metric: np.exp(random.normal(0, 0.003 if "lts" in metric else 0.01, len(rows))) for metric in METRICS.values()
    }
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


def test_a_mean_is_weighted_alike_on_both_sides(recorded: pd.DataFrame) -> None:
    """As of two section sets, of which only one has the active cycles by which occupancy is weighted."""
    cell = cell_of(recorded[recorded["cell"] == "unet.inference"])
    (table,) = cell.sets
    busy = np.where(np.arange(len(table)) % 2, 90.0, 10.0)
    occupied = table.assign(**{"sm__warps_active.avg.pct_of_peak_sustained_active": busy})
    cycles = occupied.assign(**{"sm__cycles_active.avg": np.where(busy > 50, 1e6, 1.0)})
    found = outcomes((replace(cell, sets=[cycles]), replace(cell, sets=[occupied])))
    rates = found[found["quantity"] == "occupancy_pct"]
    assert len(rates) and CHANGED not in set(rates["outcome"]) and (rates["delta"] == 0).all()
    weighted = outcomes((replace(cell, sets=[cycles]), replace(cell, sets=[cycles])))
    whole = weighted[(weighted["quantity"] == "occupancy_pct") & (weighted["level"] == "cell")]
    assert whole["baseline_value"].iloc[0] == pytest.approx(90, rel=1e-3)


def test_kernels_are_the_same_if_their_mangled_names_are(recorded: pd.DataFrame) -> None:
    """As nsys and ncu print `f<(int)4>` and `f<4>`, and one side has its launches from ncu alone."""
    cell = cell_of(recorded[recorded["cell"] == "bert.inference"])
    renamed = cell.launches.assign(kernel="void " + cell.launches["kernel"])
    found = outcomes((cell, replace(cell, launches=renamed)))
    kernels = found[found["level"] == "kernel"]
    assert len(kernels) and set(kernels["change"]) == {""} and (kernels["delta"] == 0).all()
    assert set(kernels["name"]) == set(cell.launches["kernel"])


def test_sides_are_compared_whose_sets_or_gpus_count_the_same_by_other_metrics(recorded: pd.DataFrame) -> None:
    """L2 by sectors instead of bytes, as another set has it, and DRAM by the names of another GPU."""
    cell = cell_of(recorded[recorded["cell"] == "bert.inference"])
    (table,) = cell.sets
    names = {METRICS["read"]: "dram__bytes_op_read.sum", METRICS["write"]: "dram__bytes_op_write.sum"}
    by_sectors = table.rename(columns=names).assign(**{"lts__t_sectors.sum": table[METRICS["l2"]] / 32})
    other = replace(cell, sets=[by_sectors.drop(columns=METRICS["l2"])])
    whole = outcomes((cell, other)).query("level == 'cell'").set_index("quantity")
    assert set(whole.index) == {"dram_bytes", "l2_bytes"}
    assert whole["baseline_value"].tolist() == pytest.approx(whole["candidate_value"].tolist())


def test_what_only_one_set_counts_of_tensor_cores_is_no_change(recorded: pd.DataFrame) -> None:
    cell = multiplying(cell_of(recorded[recorded["cell"] == "bert.inference"]), "bf16")
    more = cell.sets[0].assign(**{"sm__ops_path_tensor_src_fp64.sum": 1e12})
    whole = outcomes((replace(cell, sets=[more]), cell)).query("level == 'cell'").set_index("quantity")
    assert whole.loc["tensor_flop", "baseline_value"] == whole.loc["tensor_flop", "candidate_value"] == 2.0**37


OF_TENSOR_CORES = {"bf16": "bf16_dst_fp32", "fp16": "fp16", "tf32": "tf32_dst_fp32", "fp8": "fp8", "int8": "int8"}


def multiplying(cell: CountedCell, precision: str) -> CountedCell:
    """The cell with a product of 2^37 operations in this precision; those in 8 bits are counted in their cells alone."""
    asked = ["bf16", "fp16", "tf32", *({"fp8", "int8"} & {precision})]
    first = np.arange(len(cell.sets[0])) == 0
    counts = {f"sm__ops_path_tensor_src_{OF_TENSOR_CORES[one]}.sum": np.where(first, 2.0**37, 0.0) * (one == precision)
              for one in asked}  # fmt: skip
    return replace(cell, sets=[cell.sets[0].assign(**counts)])


@pytest.mark.parametrize(("reference", "candidate"), [("bf16", "fp8"), ("int8", "bf16"), ("fp8", "int8")])
def test_products_in_8_bits_are_operations_of_tensor_cores(
    recorded: pd.DataFrame, reference: str, candidate: str
) -> None:
    cell = cell_of(recorded[recorded["cell"] == "bert.inference"])
    found = outcomes((multiplying(cell, reference), multiplying(cell, candidate)))
    whole = found[(found["level"] == "cell") & (found["quantity"] == "tensor_flop")]
    assert whole[["baseline_value", "candidate_value"]].to_numpy().tolist() == [[2.0**37, 2.0**37]]
    assert (whole["outcome"] == SAME).all()
    # A side whose set counts nothing of tensor cores has no zero of them either.
    assert "tensor_flop" not in set(outcomes((cell, multiplying(cell, candidate)))["quantity"])


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


def test_a_run_with_one_launch_of_each_configuration_does_not_change_what_all_launches_counted(
    recorded: pd.DataFrame,
) -> None:
    """The second run counted only the first launch of each configuration, which is far off in some cells."""
    pairs = []
    for _, rows in recorded.groupby("cell", sort=False):
        every, second = cell_of(rows), cell_of(rows, "_again")
        there = second.sets[0][METRICS["read"]].notna()
        first = second.sets[0][there].assign(launch=np.flatnonzero(there), multiplicity=1.0)
        pairs.append((every, replace(second, sets=[first])))
    found = outcomes(*pairs)
    assert (found["outcome"] == CHANGED).mean() < 0.01
    assert (found.loc[found["level"] == "cell", "outcome"] != CHANGED).all()


@pytest.mark.slow
def test_simulated_samples_of_the_same_launches_seldom_differ(recorded: pd.DataFrame) -> None:
    wrong = total = 0
    for name, seeds in (("mobilenetv2.train", 1), ("bert.inference", 5)):
        cell = cell_of(recorded[recorded["cell"] == name])
        for seed in range(seeds):
            found = outcomes((sampled(cell, 2 * seed), sampled(cell, 2 * seed + 1)))
            wrong, total = wrong + (found["outcome"] == CHANGED).sum(), total + len(found)
    assert total > 1000 and wrong / total < 0.01


@pytest.mark.parametrize("longer", [True, False])
@pytest.mark.parametrize("name", slow.first(CELLS))
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
    both_directions = found[(found["level"] == "layer") & (found["name"] == layer)]
    assert both_directions.loc[both_directions["quantity"] == "dram_bytes", "delta"].sum() == pytest.approx(
        layers[layer]
    )
    assert set(changed.loc[changed["level"].isin(["layer", "layer kernel"]), "name"]) == {layer}
    # What was left alone is not called changed.
    assert not (found.loc[found["quantity"] == "l2_bytes", "outcome"] == CHANGED).any()


def test_doubled_bytes_in_one_layer_are_found_by_samples_too(recorded: pd.DataFrame) -> None:
    cell = cell_of(recorded[recorded["cell"] == "mobilenetv2.train"])
    layer = str(cell.sets[0].groupby(cell.launches["module"])[METRICS["read"]].sum().idxmax())
    found = outcomes((sampled(cell, 1), sampled(planted(cell, layer, 2, list(METRICS.values())), 2)))
    layers = found[(found["level"] == "layer") & (found["outcome"] == CHANGED)]
    assert set(layers["name"]) == {layer}
    assert set(layers["quantity"]) == {"dram_bytes", "l2_bytes"}


def test_levels_add_up_to_the_cell(recorded: pd.DataFrame) -> None:
    cell = cell_of(recorded[recorded["cell"] == "mobilenetv2.train"])
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


def test_a_kernel_that_one_side_alone_launches_is_named(recorded: pd.DataFrame) -> None:
    rows = recorded[recorded["cell"] == "bert.inference"]
    fewer = rows[rows["kernel"] != rows["kernel"].iloc[-1]]
    found = outcomes((cell_of(rows), cell_of(fewer)))
    gone = found[(found["level"] == "kernel") & (found["change"] == "vanished")]
    assert len(gone) and (gone["candidate_value"] == 0).all()


def test_without_all_launches_nothing_is_decided(recorded: pd.DataFrame) -> None:
    cell = sampled(cell_of(recorded[recorded["cell"] == "bert.inference"]), 0)
    some = replace(cell, sets=[cell.sets[0].iloc[: len(cell.sets[0]) // 2]])
    found = outcomes((cell, some))
    whole = found[found["level"] == "cell"]
    assert (whole["outcome"] == UNDECIDED).all() and (whole["change"] == counter_changes.NOT_ALL).all()


def test_without_counters_there_are_no_rows(recorded: pd.DataFrame) -> None:
    cell = cell_of(recorded[recorded["cell"] == "bert.inference"])
    bare = replace(cell, sets=[cell.sets[0].drop(columns=list(METRICS.values()))])
    found = compare_counters(cell, bare, MARGIN)
    assert found.empty and decide_changes(found).empty
